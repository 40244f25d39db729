#!lua
-- Takes the shared side of a read/write lock unless somebody writes, or waits to write.
--
-- Keys: lock, timeout, writer_waits
-- Args: holder, lease_ms, not_after_us
-- Returns: {'OK', '', time_us} | {'BUSY', pttl_ms, time_us} | {'STALE', time_us} | {'FOREIGN', 'lock', why}
-- Why: Redisson's form: one field per reader, and beside the hash one key per read hold that carries its lease. The
--      hash outlives the longest of them. While writer_waits lives, a further reader is busy, even if the lock has
--      just become free: only clients of this library know that key. The holder's own field means a second copy: nothing is
--      counted and nothing gets shorter. The timeout key comes first: a refused one leaves nothing behind.

local lock, timeout, writer_waits = KEYS[1], KEYS[2], KEYS[3]
local holder, lease, not_after = ARGV[1], tonumber(ARGV[2]), tonumber(ARGV[3])

local function digits(number)
  return string.format('%.0f', number)
end

if not (lease and lease >= 1 and lease <= 86400000 and lease % 1 == 0) then
  return redis.error_reply('ERR lock lease out of range')
end

local time = redis.call('TIME')
local now = time[1] * 1000000 + time[2]
if not (not_after and now <= not_after) then
  return {'STALE', digits(now)}
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

local left = redis.call('PTTL', lock)
if redis.call('HEXISTS', lock, holder) == 0 then
  if mode == 'write' then
    return {'BUSY', left, digits(now)}
  end
  local waits = redis.call('PTTL', writer_waits)
  if waits > 0 then
    return {'BUSY', waits, digits(now)}
  end
end

if redis.call('PTTL', timeout) < lease then
  local set = redis.pcall('SET', timeout, '1', 'PX', digits(lease))
  if set.err then
    return set
  end
end
local set = redis.pcall('HSET', lock, 'mode', mode or 'read', holder, 1)
if type(set) == 'table' then
  redis.call('DEL', timeout)
  return set
end
if left < lease then
  local expires = redis.pcall('PEXPIRE', lock, digits(lease))
  if expires ~= 1 then
    redis.call('HDEL', lock, holder)
    if redis.call('HLEN', lock) <= 1 then
      redis.call('DEL', lock)
    end
    redis.call('DEL', timeout)
    return type(expires) == 'table' and expires or redis.error_reply('ERR lock could not be given a lease')
  end
end
return {'OK', '', digits(now)}
