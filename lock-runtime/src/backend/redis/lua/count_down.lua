#!lua flags=allow-oom
-- Counts a latch down by one; at zero it is deleted, and those who wait for it are told.
--
-- Keys: latch
-- Args: channel, payload
-- Returns: {'OK', what is left, 0 | 1 published or nothing to tell} | {'FOREIGN', 'lock', why}
-- Why: A latch that is open, or was never set, stays so. Not idempotent: it is sent once. Publishing is last.

local count = redis.pcall('GET', KEYS[1])
if type(count) == 'table' then
  if string.find(count.err, 'WRONGTYPE', 1, true) then
    return {'FOREIGN', 'lock', 'it holds no number'}
  end
  return count
end
if not count then
  return {'OK', '0', 1}
end
if #count > 15 or not string.match(count, '^-?%d+$') then
  return {'FOREIGN', 'lock', 'it holds no number'}
end
count = tonumber(count) - 1
if count > 0 then
  redis.call('INCRBY', KEYS[1], -1)
  return {'OK', string.format('%.0f', count), 1}
end
redis.call('DEL', KEYS[1])
return {'OK', '0', type(redis.pcall('PUBLISH', ARGV[1], ARGV[2])) == 'table' and 0 or 1}
