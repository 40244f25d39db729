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
    renewed(ttl, lock, holder, lock)
  end
  return own
end

-- What nearly every renewal is, two commands and no more, costs two thirds of the careful way.
local try = redis.pcall
local answers = {}
for i, lock in ipairs(KEYS) do
  local holder, ttl = ARGV[2 * i - 1], ttls[i]
  local own = try('HEXISTS', lock, holder)
  local extended = own == 1 and ttl > 0 and try('PEXPIRE', lock, ARGV[2 * i], 'GT') == 1
  answers[i] = (own == 0 or extended) and own or answer(renew, lock, holder, ttl)
end
return answers
