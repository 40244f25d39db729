-- Sets a counter if it is not set, or sets it again, and wakes waiters.
--
-- Flags:
-- Uses: digits, range, refusal, counter, by_request, publish, publish_or_append
-- Keys: counter, leases
-- Args: value, channel, latch, again
-- Returns: {'OK', 0 | 1 set, (channel, payload of a message that could not be published)...} | {'FOREIGN', key, why}
-- Why: If a semaphore was deleted while permits were leased, it is set to the number less those leases, so that there
--      are never more permits than the caller wants. The same holds for a semaphore that is set again, as by Redisson's
--      `setPermits`. A number below zero is the number of holders that have to leave before any caller is admitted.
--      After this script, a semaphore that a request has set counts as set by hand, and stays. Publishing comes last: the
--      number of a semaphore, if it has free permits; 1 of a latch, as Redisson does for a new count.

local value, latch = tonumber(ARGV[1]), ARGV[3] == '1'
local wrong = out_of_range(value, 0, 1000000000000, 'count')
if wrong then
  return wrong
end
local current, refused = count_at(KEYS[1])
if refused then
  return refused
end
-- Setting a latch at a semaphore's key is a mistake, and changes nothing.
local is_by_request = current and not latch and all_by_request(KEYS[1])
if current and ARGV[4] ~= '1' then
  if is_by_request then
    redis.call('SET', KEYS[1], digits(current))
  end
  return {'OK', 0}
end
local leased = redis.pcall('ZCARD', KEYS[2])
local foreign = refusal(leased, KEYS[2], 'sorted set')
if foreign then
  return foreign
end
value = value - leased
if is_by_request then
  redis.call('SET', KEYS[1], digits(value))
else
  redis.call('SET', KEYS[1], digits(value), 'KEEPTTL')
end
local reply = {'OK', 1}
if latch or value > 0 then
  publish_or_append(reply, ARGV[2], latch and '1' or digits(value))
end
return reply
