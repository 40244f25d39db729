#!lua flags=allow-oom
-- Adds permits to a semaphore that is set, and wakes waiters if there are any then.
--
-- Keys: permits
-- Args: how_many, channel
-- Returns: {'OK', free, 0 | 1 published or nothing to tell} | {'SHORT', ''} not set | {'FOREIGN', 'lock', why}
-- Why: Not idempotent: it is sent once. A semaphore that is not set does not come into being by it, or the number that
--      somebody sets later would be ignored. Nothing below 1 is published: nobody could take it.

local by = tonumber(ARGV[1])
if not (by and by >= -1000000000000 and by <= 1000000000000 and by % 1 == 0) then
  return redis.error_reply('ERR lock permits out of range')
end
local free = redis.pcall('GET', KEYS[1])
if type(free) == 'table' then
  if string.find(free.err, 'WRONGTYPE', 1, true) then
    return {'FOREIGN', 'lock', 'it holds no number'}
  end
  return free
end
if not free then
  return {'SHORT', ''}
end
-- A further sum may not leave the range that is read as a number.
if #free > 15 or not string.match(free, '^-?%d+$') or math.abs(tonumber(free) + by) > 90000000000000 then
  return {'FOREIGN', 'lock', 'it holds no number'}
end
free = redis.call('INCRBY', KEYS[1], string.format('%.0f', by))
if free <= 0 then
  return {'OK', string.format('%.0f', free), 1}
end
local text = string.format('%.0f', free)
return {'OK', text, type(redis.pcall('PUBLISH', ARGV[2], text)) == 'table' and 0 or 1}
