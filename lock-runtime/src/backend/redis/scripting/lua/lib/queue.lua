-- Fragment queue: the head of a fair lock's queue.
--
-- Offers: LIFE in ms | LONG, how many places of the queue may be looked through | living_head(queue, timeouts, ms, asker), the head or false, and whether dead ones were removed
-- After: digits
-- Why: A head whose score is past is dead, but a waiter that asks is alive, whatever the score says. The first to look at a
--      head that is ours (a uuid of version 8), and has no score or was parked, gives it LIFE from now.

local LIFE, LONG = 5000, 10000

local function living_head(queue, timeouts, ms, asker)
  local swept = false
  for _ = 1, 250 do
    local head = redis.call('LINDEX', queue, 0)
    if not head or head == asker then
      return head, swept
    end
    local dead_at = tonumber(redis.call('ZSCORE', timeouts, head))
    if dead_at and dead_at <= ms then
      redis.call('ZREM', timeouts, head)
      redis.call('LPOP', queue)
      swept = true
    else
      if not dead_at or (string.sub(head, 15, 15) == '8' and dead_at > ms + LIFE) then
        redis.call('ZADD', timeouts, digits(ms + LIFE), head)
      end
      return head, swept
    end
  end
  -- The rest of so many dead is for the next one who looks.
  return redis.call('LINDEX', queue, 0), swept
end

