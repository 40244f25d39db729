-- Fragment queue: the head of a fair lock's queue.
--
-- Offers: LIFE in ms
--         | LONG, the number of places of a queue that a script may scan
--         | living_head(queue, timeouts, ms, asker), which returns the head or false, and true if dead heads were
--         removed
-- After: digits
-- Why: A head is dead once its score has passed. The waiter that asks is alive, whatever its score is. A head of ours
--      (a uuid of version 8) that has no score or was parked gets LIFE from now on from the first script that looks at
--      it.

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
  -- The next script that looks removes the other dead heads.
  return redis.call('LINDEX', queue, 0), swept
end

