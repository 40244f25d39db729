-- Sets a counter if it is not set, or sets it again, and tells waiters.
--
-- Flags:
-- Uses: digits, range, refusal, counter, by_request, publish
-- Keys: counter, leases
-- Args: value, channel, payload, again
-- Returns: {'OK', 0 | 1 set, 0 | 1 published or nothing to tell} | {'FOREIGN', 'lock' or 'leases', why}
-- Why: A semaphore that was deleted under its holders gets what their leases leave, so that there are never more
--      permits than were asked for; so does one that is set again, as by Redisson's `setPermits`. Below zero, it
--      says how many holders have to leave before anybody is admitted. A semaphore that a request has set stays from now
--      on, as one that is set by hand. Publishing is last.

local value = tonumber(ARGV[1])
local wrong = out_of_range(value, 0, 1000000000000, 'count')
if wrong then
  return wrong
end
local stands, refused = count_at(KEYS[1])
if refused then
  return refused
end
-- An empty payload is that of a semaphore. To set a latch there is a mistake, and changes nothing.
local is_by_request = stands and ARGV[3] == '' and all_by_request(KEYS[1])
if stands and ARGV[4] ~= '1' then
  if is_by_request then
    redis.call('SET', KEYS[1], digits(stands))
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
