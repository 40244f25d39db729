-- Counts a latch down by one; at zero it is deleted, and those who wait for it are told.
--
-- Flags: allow-oom
-- Uses: digits, refusal, counter, publish
-- Keys: latch
-- Args: channel, payload
-- Returns: {'OK', what is left, 0 | 1 published or nothing to tell} | {'FOREIGN', 'lock', why}
-- Why: A latch that is open, or was never set, stays so. Not idempotent: it is sent once. Publishing is last.

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
