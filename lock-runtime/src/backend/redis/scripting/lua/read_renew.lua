-- Extends the leases of many readers, or checks or marks their holds.
--
-- Flags: allow-oom
-- Uses: digits, range, lease, mark, each
-- Keys: (lock, timeout)...
-- Args: (holder, ttl_ms)...
-- Returns: {1 held | 0 not a reader | 'what went wrong', ...} in the order of the locks
-- Why: As renew, also for the marks, with the timeout key beside the hash: a reader without one is dead to all other
--      clients, so its hold is lost. The script creates neither key. A holder that still writes here has become a
--      reader whose downgrade is under way.

for i = 1, #KEYS / 2 do
  local ttl = tonumber(ARGV[2 * i])
  local wrong = out_of_range(ttl, -LONGEST_LEASE, LONGEST_LEASE, 'lease')
  if wrong then
    return wrong
  end
end

local function renew(lock, timeout, holder, ttl)
  if redis.call('HEXISTS', lock, holder) == 0 then
    if redis.call('HEXISTS', lock, holder .. ':write') == 0 then
      return 0
    end
    extend_or_mark(ttl, lock, holder .. ':write', lock)
    return 1
  end
  if redis.call('PTTL', timeout) == -2 then
    return 0
  end
  extend_or_mark(ttl, lock, holder, lock, timeout)
  return 1
end

local answers = {}
for i = 1, #KEYS / 2 do
  answers[i] = answer(renew, KEYS[2 * i - 1], KEYS[2 * i], ARGV[2 * i - 1], tonumber(ARGV[2 * i]))
end
return answers
