-- Gives back what a holder has, the lock or its place on the list of those that wait. Reserves the lock for the first on the
-- list.
--
-- Flags: allow-oom
-- Uses: publish, told, digits, time, failed, listeners, waiting, unused
-- Keys: lock, waiting, fence?
-- Args: holder, channel, trip_us, released, last?, used?
-- Returns: as release; 1 as well if the lock was reserved
-- Why: As release. Listeners that are no processes on the list, such as Java's, are to get the lock as often as each of
--      ours. For that, it is free for a while, and left to them, but not more than every other time, for they may only
--      look on. The time of the server is a fair enough dice. The next holder's field comes before the other one goes, so
--      that there is a holder and an expiry at every step.

local lock, waiting = KEYS[1], KEYS[2]
local holder, channel, trip, released = ARGV[1], ARGV[2], ARGV[3], ARGV[4]

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
  give_back(KEYS[3], ARGV[5], ARGV[6])
end

local first, left_until, far = first_of(waiting)
if failed(left_until) then
  return left_until
end
if left_until then
  redis.pcall('ZREM', waiting, LEFT)
end
local others = math.max(0, listeners(channel) - math.max(0, listeners(channel .. ':ours')))
local leave = others > 0
if first and leave then
  local listed = redis.pcall('ZCARD', waiting)
  if type(listed) == 'number' then
    local turns = math.min(others, listed)
    leave = now % (listed + turns) < turns
  end
end

if first and not leave then
  local reserved, heard = reserve_first(lock, waiting, channel, first, far)
  if reserved then
    end_hold()
    return heard and 1 or 2
  end
end
end_hold()
if leave then
  local us = math.max(1000, math.min(LEFT_AT_MOST, 4 * (tonumber(trip) or 0)))
  redis.pcall('ZADD', waiting, digits(-(now + us)), LEFT)
  redis.pcall('PEXPIRE', waiting, LIFE)
end
return told(channel, released)
