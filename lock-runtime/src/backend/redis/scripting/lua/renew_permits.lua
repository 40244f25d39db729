-- Extends leases of permits, or checks or marks them.
--
-- Flags: allow-oom
-- Uses: digits, range, time, each
-- Keys: leases...
-- Args: (ids, ttl_ms)...
-- Returns: {1 held | 0 not all of the permits are held | 'what went wrong', ...} in the order of the keys
-- Why: With GT, a late copy never shortens a lease; with XX, it never makes one. A lease that is over is lost, even if
--      no script has taken its permit back yet. A ttl of 0 only checks. A negative ttl marks, as in renew. A score that
--      stays the same is not a write, so a marked lease lasts 1 ms longer. An error at one set of permits says nothing
--      about the others.

for i = 1, #KEYS do
  local ids, ttl = ARGV[2 * i - 1], tonumber(ARGV[2 * i])
  local wrong = out_of_range(ttl, -LONGEST_LEASE, LONGEST_LEASE, 'lease')
  if wrong then
    return wrong
  end
  wrong = out_of_range(#ids / 16, 1, math.huge, 'permits')
  if wrong then
    return wrong
  end
end

local now = math.floor(time_us() / 1000)

local function renew(leases, ids, ttl)
  local ends = {}
  for at = 1, #ids, 16 do
    ends[at] = tonumber(redis.call('ZSCORE', leases, string.sub(ids, at, at + 15)) or 0)
    if ends[at] <= now then
      return 0
    end
  end
  if ttl ~= 0 then
    local scores = {}
    for at = 1, #ids, 16 do
      local to = now + math.abs(ttl)
      if ttl < 0 then
        to = math.max(to, ends[at]) + 1
      end
      scores[#scores + 1] = digits(to)
      scores[#scores + 1] = string.sub(ids, at, at + 15)
    end
    redis.call('ZADD', leases, 'XX', 'GT', unpack(scores))
  end
  return 1
end

local answers = {}
for i, leases in ipairs(KEYS) do
  answers[i] = answer(renew, leases, ARGV[2 * i - 1], tonumber(ARGV[2 * i]))
end
return answers
