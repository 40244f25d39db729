#!lua flags=no-writes
-- Looks at a lock without touching it.
--
-- Keys: lock, queue
-- Args:
-- Returns: {'FREE'} | {'HELD', holder, count, pttl_ms, queued} | {'FOREIGN', 'lock', why}
-- Why: One answer from one moment; no-writes, so that it also runs on a replica or a full disk.

local lock = KEYS[1]
local fields = redis.pcall('HLEN', lock)
if type(fields) == 'table' then
  if string.find(fields.err, 'WRONGTYPE', 1, true) then
    return {'FOREIGN', 'lock', 'it holds no hash'}
  end
  return fields
end
if fields == 0 then
  return {'FREE'}
end
if fields ~= 1 then
  return {'FOREIGN', 'lock', 'it holds a hash of several fields'}
end
local hold = redis.call('HGETALL', lock)
if not string.match(hold[2], '^%d+$') then
  return {'FOREIGN', 'lock', 'it holds a hash without a count'}
end
local queued = redis.pcall('LLEN', KEYS[2])
return {'HELD', hold[1], hold[2], redis.call('PTTL', lock), type(queued) == 'number' and queued or 0}
