#!lua flags=no-writes
-- Looks at a counter, a semaphore's or a latch's, without touching it.
--
-- Keys: counter, leases
-- Args:
-- Returns: {'NONE'} | {'COUNT', value, live leases, ended leases, ms until the first live one ends or -1}
--          | {'FOREIGN', 'lock' or 'leases', why}
-- Why: One answer from one moment. Permits whose lease has ended are counted apart: they are as good as free, but
--      looking does not take them back.

local value = redis.pcall('GET', KEYS[1])
if type(value) == 'table' then
  if string.find(value.err, 'WRONGTYPE', 1, true) then
    return {'FOREIGN', 'lock', 'it holds no number'}
  end
  return value
end
if not value then
  return {'NONE'}
end
if #value > 15 or not string.match(value, '^-?%d+$') then
  return {'FOREIGN', 'lock', 'it holds no number'}
end
local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
local limit = string.format('%.0f', now)
local ended = redis.pcall('ZCOUNT', KEYS[2], '-inf', limit)
if type(ended) == 'table' then
  if string.find(ended.err, 'WRONGTYPE', 1, true) then
    return {'FOREIGN', 'leases', 'it holds no sorted set'}
  end
  return ended
end
local live = redis.call('ZCARD', KEYS[2]) - ended
local first = redis.call('ZRANGE', KEYS[2], ended, ended, 'WITHSCORES')[2]
local left = first and tonumber(first) - now or -1
if not (left <= 31536000000) then
  left = -1
end
return {'COUNT', value, live, ended, left}
