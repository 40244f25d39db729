-- Reads the record of a client.
--
-- Flags: no-writes
-- Uses:
-- Keys: client
-- Args:
-- Returns: {app, host, process_id, version, since}, each empty if it is not known
-- Why: With no-writes, the script also runs on a replica or a full disk. It reads field by field, because others may
--      have made the hash long, and cuts each field, because others may have made it long.

local record = {}
for i, field in ipairs({'app', 'host', 'process_id', 'version', 'since'}) do
  record[i] = string.sub(redis.call('HGET', KEYS[1], field) or '', 1, 256)
end
return record
