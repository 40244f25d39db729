#!lua
-- Takes a lock for one holder if nobody has it.
--
-- Keys: lock, fence?
-- Args: holder, lease_ms, not_after_us, counted?
-- Returns: {'OK', token or '', time_us} | {'BUSY', pttl_ms, time_us} | {'STALE', time_us}
--          | {'FOREIGN', 'lock' or 'fence', why}
-- Why: A copy that arrives after not_after is refused, so nothing late can take a lock for a dead id.
--      The holder's own field means that this is a second copy: the count stays, the lease only grows, and the
--      token rises, for the reply that carried the first one is lost. No token is wanted where no fence is named.
--      A counted fence goes up by one, as Redisson's fenced lock counts; any other follows the clock.

local lock, fence = KEYS[1], KEYS[2]
local holder, lease, not_after = ARGV[1], tonumber(ARGV[2]), tonumber(ARGV[3])

local function digits(number)
  return string.format('%.0f', number)
end

-- Written so that NaN fails, too: a lock whose PEXPIRE is refused would stay for ever.
if not (lease and lease >= 1 and lease <= 86400000 and lease % 1 == 0) then
  return redis.error_reply('ERR lock lease out of range')
end

local time = redis.call('TIME')
local now = time[1] * 1000000 + time[2]
if not (not_after and now <= not_after) then
  return {'STALE', digits(now)}
end

local token = ''
if fence then
  local last = redis.pcall('GET', fence)
  if type(last) == 'table' then
    if string.find(last.err, 'WRONGTYPE', 1, true) then
      return {'FOREIGN', 'fence', 'it holds no string'}
    end
    return last
  end
  local next = ARGV[4] and 1 or now
  if last then
    -- 2^53 - 1 has no successor that a double can tell from it.
    if #last > 16 or not string.match(last, '^%d+$') or tonumber(last) >= 9007199254740991 then
      return {'FOREIGN', 'fence', 'it holds no fencing token'}
    end
    next = math.max(tonumber(last) + 1, next)
  end
  token = digits(next)
end

local fields = redis.pcall('HLEN', lock)
if type(fields) == 'table' then
  if string.find(fields.err, 'WRONGTYPE', 1, true) then
    return {'FOREIGN', 'lock', 'it holds no hash'}
  end
  return fields
end

if fields > 0 then
  if redis.call('HEXISTS', lock, holder) == 1 then
    if fence then
      redis.call('SET', fence, token)
    end
    if redis.call('PEXPIRE', lock, digits(lease), 'GT') == 0 and redis.call('PTTL', lock) == -1 then
      redis.call('PEXPIRE', lock, digits(lease))
    end
    return {'OK', token, digits(now)}
  end
  if fields ~= 1 then
    return {'FOREIGN', 'lock', 'it holds a hash of several fields'}
  end
  return {'BUSY', redis.call('PTTL', lock), digits(now)}
end

if fence then
  redis.call('SET', fence, token)
end
redis.call('HSET', lock, holder, 1)
local expires = redis.pcall('PEXPIRE', lock, digits(lease))
if expires ~= 1 then
  redis.call('DEL', lock)
  return type(expires) == 'table' and expires or redis.error_reply('ERR lock could not be given a lease')
end
return {'OK', token, digits(now)}
