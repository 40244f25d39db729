-- Makes a writer a reader, and wakes the waiters that may read beside it.
--
-- Flags: allow-oom
-- Uses: digits, range, failed, publish
-- Keys: lock, timeout
-- Args: holder, lease_ms, channel
-- Returns: 1 it reads | {1, (channel, payload)...} it reads, but one of these messages could not be published
--          | {0, '0'} it neither reads nor writes
-- Why: The read is written only where the write was, so a second copy finds the read and a late copy finds neither; the
--      script never acquires a free lock. The rest of the lease stays as it is; lease_ms counts only for a hash without
--      a lease. Redisson itself publishes nothing here, and its waiters would sleep on. One message too many does no harm.

local lock, timeout = KEYS[1], KEYS[2]
local holder, lease, channel = ARGV[1], tonumber(ARGV[2]), ARGV[3]

local wrong = out_of_range(lease, 1, LONGEST_LEASE, 'lease')
if wrong then
  return wrong
end

local writes = redis.pcall('HEXISTS', lock, holder .. ':write')
if failed(writes) then
  return wrong_type(writes) and {0, '0'} or writes
end
if writes == 0 then
  return redis.call('HEXISTS', lock, holder) == 1 and 1 or {0, '0'}
end

local left = redis.call('PTTL', lock)
if left > 0 then
  lease = left
end
local set = redis.pcall('SET', timeout, '1', 'PX', digits(lease))
if failed(set) then
  return set
end
redis.call('HSET', lock, 'mode', 'read', holder, 1)
redis.call('HDEL', lock, holder .. ':write')
if left <= 0 then
  redis.call('PEXPIRE', lock, digits(lease))
end

local woke_all, woke_next = published(channel, '1'), published(channel, '0')
return woke_all and woke_next and 1 or {1, channel, '1', channel, '0'}
