-- Counts a latch down by one. At zero, deletes the latch and wakes its waiters.
--
-- Flags: allow-oom
-- Uses: digits, refusal, counter, publish
-- Keys: latch
-- Args: channel, payload
-- Returns: {'OK', the count that is left, 0 | 1 published or no message needed} | {'FOREIGN', 'lock', why}
-- Why: A latch that is open, or was never set, stays so. Not idempotent, so it is sent once. Publishing comes last.

local count, refused = count_at(KEYS[1])
if refused then
  return refused
end
if not count then
  return {'OK', '0', 1}
end
count = count - 1
if count > 0 then
  redis.call('INCRBY', KEYS[1], -1)
  return {'OK', digits(count), 1}
end
redis.call('DEL', KEYS[1])
return {'OK', '0', published(ARGV[1], ARGV[2]) and 1 or 0}
