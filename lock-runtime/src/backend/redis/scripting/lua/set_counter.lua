-- Sets a counter if it is not set, or sets it again, and wakes waiters.
--
-- Flags:
-- Uses: digits, range, refusal, counter, by_request, publish
-- Keys: counter, leases
-- Args: value, channel, payload, again
-- Returns: {'OK', 0 | 1 set, 0 | 1 published or no message needed} | {'FOREIGN', 'lock' or 'leases', why}
-- Why: If a semaphore was deleted while permits were leased, it is set to the number less those leases, so that there
--      are never more permits than the caller wants. The same holds for a semaphore that is set again, as by Redisson's
--      `setPermits`. A number below zero is the number of holders that have to leave before any caller is admitted.
--      After this script, a semaphore that a request has set counts as set by hand, and stays. Publishing comes last.

local value = tonumber(ARGV[1])
local wrong = out_of_range(value, 0, 1000000000000, 'count')
if wrong then
  return wrong
end
local current, refused = count_at(KEYS[1])
if refused then
  return refused
end
-- Only a semaphore has an empty payload. Setting a latch at a semaphore's key is a mistake, and changes nothing.
local is_by_request = current and ARGV[3] == '' and all_by_request(KEYS[1])
if current and ARGV[4] ~= '1' then
  if is_by_request then
    redis.call('SET', KEYS[1], digits(current))
  end
  return {'OK', 0, 1}
end
local leased = redis.pcall('ZCARD', KEYS[2])
local foreign = refusal(leased, 'leases', 'sorted set')
if foreign then
  return foreign
end
value = value - leased
if is_by_request then
  redis.call('SET', KEYS[1], digits(value))
else
  redis.call('SET', KEYS[1], digits(value), 'KEEPTTL')
end
if value <= 0 and ARGV[3] == '' then
  return {'OK', 1, 1}
end
local payload = ARGV[3] == '' and digits(value) or ARGV[3]
return {'OK', 1, published(ARGV[2], payload) and 1 or 0}
