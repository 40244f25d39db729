-- Ends what a holder has at a fair lock, its hold or its place in the queue, and wakes the first waiter.
--
-- Flags: allow-oom
-- Uses: digits, time, failed, queue, publish
-- Keys: lock, queue, timeouts
-- Args: holder, channel
-- Returns: {1} done | {1, channel, payload} done, but this message could not be published | {0, time_us} neither held nor
--          queued
-- Why: One script does both, because a caller that leaves cannot always know whether it has a hold or a place. Only the
--      first waiter in the queue is woken, and only if the lock is free. Dead heads are removed as in fair_acquire.lua.
--      No score of another waiter changes, because the score of this one added nothing to them. LREM scans the queue.
--      In a LONG queue, a waiter that leaves is marked as dead instead, and removed when it is the head.

local lock, queue, timeouts = KEYS[1], KEYS[2], KEYS[3]
local holder, channel = ARGV[1], ARGV[2]

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
  return {1}
end
-- In a slot that leaves its node, reading a key that does not exist is an error, so the lock is free.
local fields = redis.pcall('HLEN', lock)
local there = failed(fields) and wrong_type(fields) or not failed(fields) and fields > 0
head = not there and living_head(queue, timeouts, ms)
if not head or published(channel .. ':' .. head, '0') then
  return {1}
end
return {1, channel .. ':' .. head, '0'}
