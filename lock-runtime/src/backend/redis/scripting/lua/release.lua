-- Releases a lock and wakes a waiter.
--
-- Flags: allow-oom
-- Uses: publish, publish_release, digits, time, failed, return_tokens
-- Keys: lock, fence?
-- Args: holder, channel, last?, used?
-- Returns: 1 released | 2 or more: one, and the number of listeners that received the message
--          | {1, channel, payload} released, but this message could not be published | {0, time_us} not the holder
-- Why: HDEL checks and deletes in one step, and Redis deletes a hash that becomes empty. Publishing comes last and
--      cannot undo the release. Reserved tokens go back only with the lock: a late copy of the release returns none.
--      The reply for a caller that is not the holder carries the time: after not_after, no acquire of this id can still
--      arrive.

local gone = redis.pcall('HDEL', KEYS[1], ARGV[1])
if failed(gone) and not wrong_type(gone) then
  return gone
end
if gone ~= 1 then
  return {0, digits(time_us())}
end
return_tokens(KEYS[2], ARGV[3], ARGV[4])
return publish_release(ARGV[2])
