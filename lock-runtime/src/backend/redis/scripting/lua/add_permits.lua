-- Adds permits to a semaphore that is set, and wakes waiters if it then has free permits.
--
-- Flags: allow-oom
-- Uses: digits, range, refusal, counter, by_request, publish, publish_or_append
-- Keys: permits
-- Args: how_many, channel
-- Returns: {'OK', 1, (channel, payload of a message that could not be published)...} | {'SHORT', ''} not set
--          | {'FOREIGN', key, why}
-- Why: Not idempotent, so it is sent once. It does not make a semaphore that is not set: if it did, a later request to
--      set the number would be ignored. After it, a semaphore that a request has set counts as set by hand, and stays.
--      A number below 1 is not published, because no permit would be free.

local by = tonumber(ARGV[1])
local wrong = out_of_range(by, -1000000000000, 1000000000000, 'permits')
if wrong then
  return wrong
end
local free, refused = count_at(KEYS[1])
if refused then
  return refused
end
if not free then
  return {'SHORT', ''}
end
-- The sum must stay in the range that `count_at` reads as a number.
if math.abs(free + by) > 90000000000000 then
  return {'FOREIGN', KEYS[1], 'it holds no number'}
end
if all_by_request(KEYS[1]) then
  free = free + by
  redis.call('SET', KEYS[1], digits(free))
else
  free = redis.call('INCRBY', KEYS[1], digits(by))
end
local reply = {'OK', 1}
if free > 0 then
  publish_or_append(reply, ARGV[2], digits(free))
end
return reply
