-- Extends many leases, or checks or marks the holds.
--
-- Flags: allow-oom
-- Uses: digits, range, lease, mark, each
-- Keys: lock...
-- Args: (holder, ttl_ms)...
-- Returns: {1 held | 0 not the holder | 'what went wrong', ...} in the order of the keys
-- Why: With GT, a late copy never shortens a lease. A ttl of 0 only checks that the hold is there. A negative ttl marks
--      a hold that is there: it extends the lease to that length, or not at all if it is -1, and writes the field once
--      more in any case. Replicas can then be asked for a write that is newer than the hold. An error at one key says
--      nothing about the other keys. The script never creates a key.

local ttls = {}
for i = 1, #KEYS do
  local ttl = tonumber(ARGV[2 * i])
  local wrong = out_of_range(ttl, -LONGEST_LEASE, LONGEST_LEASE, 'lease')
  if wrong then
    return wrong
  end
  ttls[i] = ttl
end

local function renew(lock, holder, ttl)
  local own = redis.call('HEXISTS', lock, holder)
  if own == 1 then
    extend_or_mark(ttl, lock, holder, lock)
  end
  return own
end

-- Nearly every renewal needs only these two commands. They cost two thirds of `answer(renew, ...)`.
local try = redis.pcall
local answers = {}
for i, lock in ipairs(KEYS) do
  local holder, ttl = ARGV[2 * i - 1], ttls[i]
  local own = try('HEXISTS', lock, holder)
  local extended = own == 1 and ttl > 0 and try('PEXPIRE', lock, ARGV[2 * i], 'GT') == 1
  answers[i] = (own == 0 or extended) and own or answer(renew, lock, holder, ttl)
end
return answers
