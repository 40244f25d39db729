#!lua
-- Takes the exclusive side of a read/write lock if nobody has either.
--
-- Keys: lock, writer_waits, fence?
-- Args: holder, lease_ms, not_after_us, waits_ms
-- Returns: {'OK', token or '', time_us} | {'BUSY', pttl_ms, time_us} | {'STALE', time_us}
--          | {'FOREIGN', 'lock' or 'fence', why}
-- Why: As acquire, in Redisson's form of a writer: a field `holder:write` beside `mode`. Readers whose timeout keys
--      are all gone are dead, by their own leases, though the hash may outlive them: they keep nobody out. Found busy
--      with living readers, a caller that goes on waiting leaves writer_waits behind for that long, so that no
--      further reader of this library comes in; never a field, for Redisson counts those.

local lock, writer_waits, fence = KEYS[1], KEYS[2], KEYS[3]
local field, lease, not_after = ARGV[1] .. ':write', tonumber(ARGV[2]), tonumber(ARGV[3])
local waits = tonumber(ARGV[4])

local function digits(number)
  return string.format('%.0f', number)
end

if not (lease and lease >= 1 and lease <= 86400000 and lease % 1 == 0) then
  return redis.error_reply('ERR lock lease out of range')
end
if not (waits and waits >= 0 and waits <= 60000 and waits % 1 == 0) then
  return redis.error_reply('ERR lock wait out of range')
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
  local next = now
  if last then
    -- 2^53 - 1 has no successor that a double can tell from it.
    if #last > 16 or not string.match(last, '^%d+$') or tonumber(last) >= 9007199254740991 then
      return {'FOREIGN', 'fence', 'it holds no fencing token'}
    end
    next = math.max(tonumber(last) + 1, next)
  end
  token = digits(next)
end

local mode = redis.pcall('HGET', lock, 'mode')
if type(mode) == 'table' then
  if string.find(mode.err, 'WRONGTYPE', 1, true) then
    return {'FOREIGN', 'lock', 'it holds no hash'}
  end
  return mode
end
if mode and mode ~= 'read' and mode ~= 'write' or not mode and redis.call('HLEN', lock) > 0 then
  return {'FOREIGN', 'lock', 'it holds no read/write lock'}
end

local function somebody_reads()
  local base = string.find(lock, '{', 1, true) and lock or '{' .. lock .. '}'
  local cursor = '0'
  repeat
    local page = redis.call('HSCAN', lock, cursor, 'COUNT', 100)
    cursor = page[1]
    for i = 1, #page[2], 2 do
      -- Of a reader whose holds were not counted as expected nothing is known: it lives.
      local count = page[2][i] ~= 'mode' and (tonumber(page[2][i + 1]) or math.huge) or 0
      if count > 10000 then
        return true
      end
      for hold = 1, count do
        if redis.call('PTTL', base .. ':' .. page[2][i] .. ':rwlock_timeout:' .. hold) ~= -2 then
          return true
        end
      end
    end
  until cursor == '0'
  return false
end

if mode == 'write' and redis.call('HEXISTS', lock, field) == 1 then
  if fence then
    redis.call('SET', fence, token)
  end
  if redis.call('PTTL', lock) < lease then
    redis.call('PEXPIRE', lock, digits(lease))
  end
  return {'OK', token, digits(now)}
end
if mode == 'write' or mode == 'read' and somebody_reads() then
  if mode == 'read' and waits > 0 and redis.call('PTTL', writer_waits) < waits then
    -- A policy of our own: without the right to it, the lock is as good, and readers may starve the writer.
    redis.pcall('SET', writer_waits, '1', 'PX', digits(waits))
  end
  return {'BUSY', redis.call('PTTL', lock), digits(now)}
end

if fence then
  redis.call('SET', fence, token)
end
if mode then
  redis.call('DEL', lock)
end
redis.call('HSET', lock, 'mode', 'write', field, 1)
local expires = redis.pcall('PEXPIRE', lock, digits(lease))
if expires ~= 1 then
  redis.call('DEL', lock)
  return type(expires) == 'table' and expires or redis.error_reply('ERR lock could not be given a lease')
end
redis.pcall('DEL', writer_waits)
return {'OK', token, digits(now)}
