-- Extends many leases, or looks whether the holds are still there, or marks them.
--
-- Flags: allow-oom
-- Uses: digits, range, lease, mark, each
-- Keys: lock...
-- Args: (holder, ttl_ms)...
-- Returns: {1 held | 0 not the holder | 'what went wrong', ...} in the order of the keys
-- Why: GT, so that a late copy never shortens a lease. A ttl of 0 only looks. A negative one marks a hold
--      that is there: extends it so far, by nothing if it is -1, and writes it once more in any case, so that there is
--      something newer than it that replicas can be asked for. Each key stands alone: what is
--      wrong with one says nothing about the others. A key is never created.

for i = 1, #KEYS do
  local ttl = tonumber(ARGV[2 * i])
  local wrong = out_of_range(ttl, -LONGEST_LEASE, LONGEST_LEASE, 'lease')
  if wrong then
    return wrong
  end
end

local function renew(lock, holder, ttl)
  local own = redis.call('HEXISTS', lock, holder)
  if own == 1 then
    renewed(ttl, lock, holder, lock)
  end
  return own
end

local answers = {}
for i, lock in ipairs(KEYS) do
  answers[i] = answer(renew, lock, ARGV[2 * i - 1], tonumber(ARGV[2 * i]))
end
return answers
