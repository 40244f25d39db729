#!lua flags=allow-oom
-- Gives back what a holder has at a fair lock, the hold or the place in the queue, and wakes the first in the queue.
--
-- Keys: lock, queue, timeouts
-- Args: holder, channel, payload
-- Returns: {1, ''} given back | {2, the channel} given back, but the message could not be published there
--          | {0, time_us} neither held nor queued
-- Why: One script for both, for whoever leaves cannot always know which of them it has. Only the first in the queue
--      is told, and only if the lock is free. Dead heads are passed over as in fair_acquire.lua. Leaving the queue
--      moves nobody's score: ours added nothing to them. LREM looks through the queue, but a waiter leaves once.

local lock, queue, timeouts = KEYS[1], KEYS[2], KEYS[3]
local holder, channel, payload = ARGV[1], ARGV[2], ARGV[3]
local LIFE = 5000

local gone = redis.pcall('HDEL', lock, holder)
if type(gone) == 'table' and not string.find(gone.err, 'WRONGTYPE', 1, true) then
  return gone
end
local head = redis.pcall('LINDEX', queue, 0)
local scored = redis.pcall('ZREM', timeouts, holder)
if type(head) == 'table' or type(scored) == 'table' then
  local wrong = type(head) == 'table' and head or scored
  if not string.find(wrong.err, 'WRONGTYPE', 1, true) then
    return wrong
  end
  head, scored = false, 0
end

local time = redis.call('TIME')
local now = time[1] * 1000000 + time[2]
local ms = math.floor(now / 1000)

local led = head == holder
if led then
  redis.call('LPOP', queue)
elseif scored == 1 then
  redis.call('LREM', queue, 1, holder)
end
if gone ~= 1 and scored ~= 1 and not led then
  return {0, string.format('%.0f', now)}
end
if not head or (gone ~= 1 and not led) or redis.call('EXISTS', lock) == 1 then
  return {1, ''}
end

for _ = 1, 1000 do
  head = redis.call('LINDEX', queue, 0)
  if not head then
    return {1, ''}
  end
  local dead_at = tonumber(redis.call('ZSCORE', timeouts, head))
  if dead_at and dead_at <= ms then
    redis.call('ZREM', timeouts, head)
    redis.call('LPOP', queue)
  else
    if not dead_at or (string.sub(head, 15, 15) == '8' and dead_at > ms + LIFE) then
      redis.call('ZADD', timeouts, string.format('%.0f', ms + LIFE), head)
    end
    break
  end
end
if type(redis.pcall('PUBLISH', channel .. ':' .. head, payload)) == 'table' then
  return {2, channel .. ':' .. head}
end
return {1, ''}
