-- Gives back what a holder has at a fair lock, the hold or the place in the queue, and wakes the first in the queue.
--
-- Flags: allow-oom
-- Uses: digits, time, failed, queue, publish
-- Keys: lock, queue, timeouts
-- Args: holder, channel, payload
-- Returns: {1, ''} given back | {2, the channel} given back, but the message could not be published there
--          | {0, time_us} neither held nor queued
-- Why: One script for both, because a caller that leaves cannot always know which of them it has. Only the first in the queue
--      is told, and only if the lock is free. Dead heads are passed over as in fair_acquire.lua. Leaving the queue
--      moves nobody's score: ours added nothing to them. LREM looks through the queue; in a LONG one, who leaves is
--      marked as dead instead, and goes when it is the head.

local lock, queue, timeouts = KEYS[1], KEYS[2], KEYS[3]
local holder, channel, payload = ARGV[1], ARGV[2], ARGV[3]

local gone = redis.pcall('HDEL', lock, holder)
if failed(gone) and not wrong_type(gone) then
  return gone
end
local head = redis.pcall('LINDEX', queue, 0)
local scored = redis.pcall('ZSCORE', timeouts, holder)
if failed(head) or failed(scored) then
  local wrong = failed(head) and head or scored
  if not wrong_type(wrong) then
    return wrong
  end
  head, scored = false, false
end

local now = time_us()
local ms = math.floor(now / 1000)

local led = head == holder
if not led and scored and redis.call('LLEN', queue) > LONG then
  redis.call('ZADD', timeouts, 'XX', digits(ms), holder)
elseif led or scored then
  redis.call('ZREM', timeouts, holder)
  if led then
    redis.call('LPOP', queue)
  else
    redis.call('LREM', queue, 1, holder)
  end
end
if gone ~= 1 and not scored and not led then
  return {0, digits(now)}
end
if not head or (gone ~= 1 and not led) then
  return {1, ''}
end
-- In a slot that leaves its node, to look at what is not there is an error: it is free.
local fields = redis.pcall('HLEN', lock)
local there = failed(fields) and wrong_type(fields) or not failed(fields) and fields > 0
if there then
  return {1, ''}
end

head = living_head(queue, timeouts, ms)
if not head then
  return {1, ''}
end
if not published(channel .. ':' .. head, payload) then
  return {2, channel .. ':' .. head}
end
return {1, ''}
