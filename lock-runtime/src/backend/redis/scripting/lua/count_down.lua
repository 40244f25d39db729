-- Counts a latch down by one. At zero, deletes the latch and wakes its waiters.
--
-- Flags: allow-oom
-- Uses: digits, refusal, counter, publish, publish_or_append
-- Keys: latch
-- Args: channel
-- Returns: {'OK', the count that is left, (channel, payload of a message that could not be published)...}
--          | {'FOREIGN', key, why}
-- Why: A latch that is open, or was never set, stays so. Not idempotent, so it is sent once. Publishing comes last: 0, as
--      Redisson does when a latch has opened.

local count, refused = count_at(KEYS[1])
if refused then
  return refused
end
if not count then
  return {'OK', '0'}
end
count = count - 1
if count > 0 then
  redis.call('INCRBY', KEYS[1], -1)
  return {'OK', digits(count)}
end
redis.call('DEL', KEYS[1])
local reply = {'OK', '0'}
publish_or_append(reply, ARGV[1], '0')
return reply
