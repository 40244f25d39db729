#!lua flags=allow-oom
-- Gives a lock back and wakes a waiter.
--
-- Keys: lock
-- Args: holder, channel, payload
-- Returns: {1, ''} released | {2, ''} released, but the message could not be published | {0, time_us} not the holder
-- Why: HDEL asks and deletes in one step, and an emptied hash is gone. Publishing is last and cannot undo the
--      release. Not the holder comes with the time: after not_after, no acquire of this id can still arrive.

local gone = redis.pcall('HDEL', KEYS[1], ARGV[1])
if type(gone) == 'table' and not string.find(gone.err, 'WRONGTYPE', 1, true) then
  return gone
end
if gone ~= 1 then
  local time = redis.call('TIME')
  return {0, string.format('%.0f', time[1] * 1000000 + time[2])}
end
if type(redis.pcall('PUBLISH', ARGV[2], ARGV[3])) == 'table' then
  return {2, ''}
end
return {1, ''}
