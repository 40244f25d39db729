-- Ends what a holder has, the lock or its place on the waiting list. Reserves the lock for the first holder on the
-- list.
--
-- Flags: allow-oom
-- Uses: publish, publish_release, digits, time, failed, refusal, fence, listeners, waiting, return_tokens
-- Keys: lock, waiting, fence
-- Args: holder, channel, trip_us, run_id, next, next_not_after_us, last?, used?
-- Returns: as release; 1 as well if the lock was reserved | {-1, time} the lock was reserved, and the next holder of the
--          process is on the list
-- Why: As release. The token is drawn for the reserved holder, after unused tokens have gone back. If the holder asks
--      after all, it gets another one. Listeners that are not on the list, such as Java clients, should acquire the lock
--      as often as each process on the list. So the lock is sometimes left free for them for a while, at most every
--      other time, because they may only look on. The server's time serves as the dice. The field of the reservation is
--      written before the old one is deleted, so that the lock has a holder and an expiry at every step. `next` goes to
--      the end of the list, as by an acquire that finds the lock busy: only if another holder comes first, and not after
--      the date, when its process may have gone.

local lock, waiting = KEYS[1], KEYS[2]
local holder, channel, trip = ARGV[1], ARGV[2], ARGV[3]

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

local first, left_until = first_of(waiting)
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

if ARGV[7] then
  return_tokens(KEYS[3], ARGV[7], ARGV[8])
end
if first and not leave then
  local token = ARGV[4] ~= '' and next_token(KEYS[3], now) or nil
  if token then
    redis.call('SET', KEYS[3], token)
  end
  local reserved, receivers = reserve_first(lock, waiting, channel, first, now, nil, token, ARGV[4])
  if reserved then
    redis.call('HDEL', lock, holder)
    if receivers and ARGV[5] ~= '' and now <= tonumber(ARGV[6]) and not put(waiting, ARGV[5], now) then
      return {-1, digits(now)}
    end
    return receivers and 1 or {1, channel, '0'}
  end
end
redis.call('HDEL', lock, holder)
if leave then
  local us = math.max(1000, math.min(LEFT_AT_MOST, 4 * (tonumber(trip) or 0)))
  redis.pcall('ZADD', waiting, digits(-(now + us)), LEFT)
  redis.pcall('PEXPIRE', waiting, LIFE)
end
return publish_release(channel)
