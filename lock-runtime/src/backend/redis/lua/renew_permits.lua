#!lua flags=allow-oom
-- Extends leases of permits, or looks whether they are still there.
--
-- Keys: leases...
-- Args: (ids, ttl_ms)...
-- Returns: {1 held | 0 not all of them are | 'what went wrong', ...} in the order of the keys
-- Why: GT, so that a late copy never shortens a lease; XX, so that a lease is never made. One that is over is gone,
--      even if nobody has taken its permit back yet. A ttl of 0 only looks. Each set of permits stands alone.

local function digits(number)
  return string.format('%.0f', number)
end

for i = 1, #KEYS do
  local ids, ttl = ARGV[2 * i - 1], tonumber(ARGV[2 * i])
  if not (ttl and ttl >= 0 and ttl <= 86400000 and ttl % 1 == 0) then
    return redis.error_reply('ERR lock lease out of range')
  end
  if #ids < 16 or #ids % 16 ~= 0 then
    return redis.error_reply('ERR lock permits out of range')
  end
end

local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)

local function renew(leases, ids, ttl)
  for at = 1, #ids, 16 do
    local score = redis.pcall('ZSCORE', leases, string.sub(ids, at, at + 15))
    if type(score) == 'table' then
      return string.find(score.err, 'WRONGTYPE', 1, true) and 0 or score.err
    end
    if not score or tonumber(score) <= now then
      return 0
    end
  end
  if ttl > 0 then
    for at = 1, #ids, 16 do
      local longer = redis.pcall('ZADD', leases, 'XX', 'GT', digits(now + ttl), string.sub(ids, at, at + 15))
      if type(longer) == 'table' then
        return longer.err
      end
    end
  end
  return 1
end

local answers = {}
for i, leases in ipairs(KEYS) do
  answers[i] = renew(leases, ARGV[2 * i - 1], tonumber(ARGV[2 * i]))
end
return answers
