-- Reads the counter of a semaphore or a latch, and changes nothing.
--
-- Flags: no-writes
-- Uses: digits, time, refusal, counter
-- Keys: counter, leases
-- Args:
-- Returns: {'NONE'} | {'COUNT', value or '', live leases, ended leases, ms until the first live one ends or -1}
--          | {'FOREIGN', key, why}
-- Why: One answer is about one moment. Permits whose lease has ended are counted apart: they are as good as free, but
--      this script does not take them back. There is no value where the server lost the number and kept the leases.

local value, refused = count_at(KEYS[1])
if refused then
  return refused
end
local now = math.floor(time_us() / 1000)
local ended = redis.pcall('ZCOUNT', KEYS[2], '-inf', digits(now))
local foreign = refusal(ended, KEYS[2], 'sorted set')
if foreign then
  return foreign
end
local live = redis.call('ZCARD', KEYS[2]) - ended
if not value and live == 0 then
  return {'NONE'}
end
return {'COUNT', value and digits(value) or '', live, ended, until_end(KEYS[2], ended, now)}
