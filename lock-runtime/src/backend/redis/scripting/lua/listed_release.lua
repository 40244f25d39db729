-- Gives back what a holder has, the lock or its place on the list of those that wait. In a crowd, reserves the lock for the
-- first on the list.
--
-- Flags: allow-oom
-- Uses: publish, digits, time, failed, listeners, waiting, unused
-- Keys: lock, waiting, fence?
-- Args: holder, channel, trip_us, crowd, to_few, to_crowd, passed_on, last?, used?
-- Returns: as release
-- Why: As release. Fewer listeners than a crowd are all told that the lock is free, and ask at the same time: that is
--      faster than to wait for the one that is next, and of a crowd nearly all would ask in vain. Listeners that are no
--      processes on the list, such as Java's, are to get the lock as often as each of ours. For that, it is free for a
--      while, and left to them, but not more than every other time, for they may only look on. The time of the server
--      is a fair enough dice. They are told each time that it passes on, for they may be about to join the list. The
--      next holder's field comes before the other one goes, so that there is a holder and an expiry at every step.

local lock, waiting = KEYS[1], KEYS[2]
local holder, channel, trip, crowd = ARGV[1], ARGV[2], ARGV[3], tonumber(ARGV[4])
local to_few, to_crowd, passed_on = ARGV[5], ARGV[6], ARGV[7]

local held = redis.pcall('HEXISTS', lock, holder)
if failed(held) and not wrong_type(held) then
  return held
end
local left_list = redis.pcall('ZREM', waiting, holder)
if failed(left_list) and not wrong_type(left_list) then
  return left_list
end
local now = time_us()
if held ~= 1 then
  return {0, digits(now)}
end

local function end_hold()
  redis.call('HDEL', lock, holder)
  give_back(KEYS[3], ARGV[8], ARGV[9])
end

local all = listeners(channel)
if all < crowd then
  end_hold()
  return published(channel, to_few) and 1 or 2
end

local first, left_until, far = first_of(waiting)
if failed(left_until) then
  return left_until
end
if left_until then
  redis.pcall('ZREM', waiting, LEFT)
end
local others = math.max(0, all - math.max(0, listeners(channel .. ':ours')))
local leave = others > 0
if first and leave then
  local listed = redis.pcall('ZCARD', waiting)
  if type(listed) == 'number' then
    local turns = math.min(others, listed)
    leave = now % (listed + turns) < turns
  end
end

if first and not leave then
  local reserved, told = reserve(lock, waiting, first, far, channel)
  if reserved then
    end_hold()
    if others > 0 then
      published(channel, passed_on)
    end
    return told and 1 or 2
  end
end
end_hold()
if leave then
  local us = math.max(1000, math.min(LEFT_AT_MOST, 4 * (tonumber(trip) or 0)))
  redis.pcall('ZADD', waiting, digits(-(now + us)), LEFT)
  redis.pcall('PEXPIRE', waiting, LIFE)
end
return published(channel, to_crowd) and 1 or 2
