-- Acquires a fair lock for the first waiter in its queue. Any other caller that waits gets a place in the queue, or
-- keeps its place.
--
-- Flags:
-- Uses: digits, range, refusal, fence, admitted, lease, holder, listeners, keeper, queue, publish
-- Keys: lock, queue, timeouts, fence?
-- Args: holder, place, lease_ms, not_after_us, waits, channel
-- Returns: {'OK', token or '', time_us} | {'BUSY', pttl_ms, time_us} | {'KEPT', pttl_ms, time_us}
--          | {'QUEUED', pttl_ms, 0 | 1 first | 2 first and kept, time_us} | {'STALE', time_us}
--          | {'FOREIGN' or 'FENCE', key, why}
-- Why: As acquire.lua, with Redisson's queue: a list of holders, and for each of them the time after which it counts as
--      dead. That time matters only at the head of the queue. Redisson adds each waiter's whole wait to the score
--      before it, and subtracts a waiter's wait from all others when that waiter acquires the lock or gives up. Our
--      waiters ask again and again, so each lives for LIFE from its last question, by the server's time, and no score
--      has to change when a waiter leaves: an operation touches only the ends of the queue, however long others have
--      made it. Only behind a Java waiter, our waiters are parked PARK beyond its score, because the time that it
--      subtracts would otherwise make them look dead. Once such a waiter is the head, the next script that looks at it
--      sets it back to LIFE. MOST keeps scores from growing in a queue that is never empty. A uuid of version 8 tells
--      our holders from Redisson's random ones. A caller that removes a dead head while the lock is free wakes the next
--      waiter. A waiter whose holder id was outdated keeps its place under the old id. If an unanswered question has
--      granted the lock to the old id, the lock passes to the new id; a copy of the process with the same place then
--      comes too late. The first waiter in the queue asks a holder that keeps the lock to give it up, as acquire.lua
--      does.

local lock, queue, timeouts, fence = KEYS[1], KEYS[2], KEYS[3], KEYS[4]
local holder, place, lease, not_after = ARGV[1], ARGV[2], tonumber(ARGV[3]), tonumber(ARGV[4])
local waits, channel = ARGV[5] == '1', ARGV[6]
local PARK, MOST, TAIL = 300000, 3600000, 256

local now, token, refused = admitted(out_of_range(lease, 1, LONGEST_LEASE, 'lease'), not_after, fence)
if refused then
  return refused
end

local fields, queued, timed = redis.pcall('HLEN', lock), redis.pcall('LLEN', queue), redis.pcall('ZCARD', timeouts)
local foreign = refusal(fields, lock, 'hash') or refusal(queued, queue, 'list') or refusal(timed, timeouts, 'sorted set')
if foreign then
  return foreign
end

if fields > 0 and holder ~= place and redis.call('HEXISTS', lock, place) == 1 then
  redis.call('HSET', lock, holder, 1)
  redis.call('HDEL', lock, place)
end
if fields > 0 and redis.call('HEXISTS', lock, holder) == 1 then
  if fence then
    redis.call('SET', fence, token)
  end
  extend(lock, lease)
  return {'OK', token, digits(now)}
end
local other, _
if fields > 0 then
  local miscounted
  other, _, miscounted = sole_holder(lock, fields)
  if miscounted then
    return miscounted
  end
end

local ms = math.floor(now / 1000)

local head, swept = living_head(queue, timeouts, ms, place)

if fields == 0 and (not head or head == place) then
  if head then
    redis.call('LPOP', queue)
  end
  redis.call('ZREM', timeouts, place)
  if fence then
    redis.call('SET', fence, token)
  end
  redis.call('HSET', lock, holder, 1)
  local unleased = give_lease(lock, lease)
  if unleased then
    redis.pcall('HDEL', lock, holder)
    return unleased
  end
  return {'OK', token, digits(now)}
end

local function wake_next()
  if swept and head and fields == 0 then
    published(channel .. ':' .. head, '0')
  end
end

local left = redis.call('PTTL', lock)
local first = not head or head == place
local kept = first and other and ask_keeper(other, lock, now)
if not waits then
  wake_next()
  return {kept and 'KEPT' or 'BUSY', left, digits(now)}
end

local known = redis.call('ZSCORE', timeouts, place)
if redis.call('LLEN', queue) ~= redis.call('ZCARD', timeouts) then
  -- The list or the sorted set has lost entries.
  known = redis.call('LPOS', queue, place, 'RANK', -1, 'MAXLEN', LONG)
end
local dead_at = ms + LIFE
if not first and redis.call('ZCOUNT', timeouts, '(' .. digits(dead_at), '+inf') > 0 then
  -- Find the nearest Java waiter before this one. If it is further away than a script may look, the last waiter in
  -- the queue was parked behind it, and this one is parked there as well. Parking without need does no harm.
  local tail = redis.call('LRANGE', queue, -TAIL, -1)
  local java, parked
  for _, waiter in ipairs(tail) do
    if waiter == place then
      break
    elseif string.sub(waiter, 15, 15) ~= '8' then
      java = waiter
    end
  end
  if not java and #tail == TAIL then
    parked = tonumber(redis.call('ZSCORE', timeouts, tail[TAIL]))
  elseif java then
    parked = math.max(tonumber(redis.call('ZSCORE', timeouts, java)) or ms, ms) + PARK + LIFE
  end
  dead_at = math.min(math.max(parked or 0, dead_at), ms + MOST)
end
redis.call('ZADD', timeouts, digits(dead_at), place)
if not known then
  redis.call('RPUSH', queue, place)
end
wake_next()
return {'QUEUED', left, kept and 2 or first and 1 or 0, digits(now)}
