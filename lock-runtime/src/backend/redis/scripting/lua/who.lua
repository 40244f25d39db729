-- Who a client is.
--
-- Flags: no-writes
-- Uses:
-- Keys: client
-- Args:
-- Returns: {app, host, process_id, version, since}, each empty if it is not known
-- Why: no-writes, so that it also runs on a replica or a full disk. By field, because others may have made the hash long;
--      what they made long of it is cut.

local said = {}
for i, field in ipairs({'app', 'host', 'process_id', 'version', 'since'}) do
  said[i] = string.sub(redis.call('HGET', KEYS[1], field) or '', 1, 256)
end
return said
