-- Gives a lock back and wakes a waiter.
--
-- Flags: allow-oom
-- Uses: publish, told, digits, time, failed, unused
-- Keys: lock, fence?
-- Args: holder, channel, payload, last?, used?
-- Returns: 1 released | 2 released, but the message could not be published | 3 released, and somebody heard it
--          | {0, time_us} not the holder
-- Why: HDEL asks and deletes in one step, and an emptied hash is gone. Publishing is last and cannot undo the release.
--      Tokens go back with the lock alone: a late copy of the release knows of none. Not the holder comes with the time:
--      after not_after, no acquire of this id can still arrive.

local gone = redis.pcall('HDEL', KEYS[1], ARGV[1])
if failed(gone) and not wrong_type(gone) then
  return gone
end
if gone ~= 1 then
  return {0, digits(time_us())}
end
give_back(KEYS[2], ARGV[4], ARGV[5])
return told(ARGV[2], ARGV[3])
