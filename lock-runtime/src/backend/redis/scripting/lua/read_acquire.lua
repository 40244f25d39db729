-- Acquires the shared side of a read/write lock unless a writer has it or waits for it.
--
-- Flags:
-- Uses: digits, range, failed, refusal, fence, admitted, holder, mode, lease
-- Keys: lock, timeout, writer_waits
-- Args: holder, lease_ms, not_after_us
-- Returns: {'OK', '', time_us} | {'BUSY', pttl_ms, time_us} | {'STALE', time_us} | {'FOREIGN', key, why}
-- Why: Redisson's form: one field for each reader, and beside the hash one key for each read hold, which carries its
--      lease. The hash outlives the longest of these leases. While writer_waits exists, a further reader is busy even
--      if the lock has just become free: only clients of this library know that key. If the hash already has the
--      holder's field, this is a second copy: no count rises and no lease gets shorter. The timeout key is written
--      first: if that is refused, nothing is left behind.

local lock, timeout, writer_waits = KEYS[1], KEYS[2], KEYS[3]
local holder, lease, not_after = ARGV[1], tonumber(ARGV[2]), tonumber(ARGV[3])

local now, _, late = admitted(out_of_range(lease, 1, LONGEST_LEASE, 'lease'), not_after)
if late then
  return late
end

local mode, foreign = mode_of(lock)
if foreign then
  return foreign
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
  if failed(set) then
    return set
  end
end
local set = redis.pcall('HSET', lock, 'mode', mode or 'read', holder, 1)
if failed(set) then
  redis.pcall('DEL', timeout)
  return set
end
if left < lease then
  local unleased = give_lease(lock, lease)
  if unleased then
    redis.pcall('HDEL', lock, holder)
    if redis.call('HLEN', lock) <= 1 then
      redis.pcall('HDEL', lock, 'mode')
    end
    redis.pcall('DEL', timeout)
    return unleased
  end
end
return {'OK', '', digits(now)}
