#!lua flags=allow-oom
-- Makes a writer a reader, and wakes who may read beside it.
--
-- Keys: lock, timeout
-- Args: holder, lease_ms, channel
-- Returns: {1, ''} it reads | {2, ''} it reads, but a message could not be published | {0, '0'} it does neither
-- Why: The read appears only where the write was, so a second copy finds the read and a late one finds neither; it
--      never acquires. What is left of the lease stays as it is; lease_ms counts only for a hash without one.
--      Redisson publishes nothing here, and its own waiters would sleep on.

local lock, timeout = KEYS[1], KEYS[2]
local holder, lease, channel = ARGV[1], tonumber(ARGV[2]), ARGV[3]

if not (lease and lease >= 1 and lease <= 86400000 and lease % 1 == 0) then
  return redis.error_reply('ERR lock lease out of range')
end

local writes = redis.pcall('HEXISTS', lock, holder .. ':write')
if type(writes) == 'table' then
  if string.find(writes.err, 'WRONGTYPE', 1, true) then
    return {0, '0'}
  end
  return writes
end
if writes == 0 then
  return redis.call('HEXISTS', lock, holder) == 1 and {1, ''} or {0, '0'}
end

local left = redis.call('PTTL', lock)
if left > 0 then
  lease = left
end
local set = redis.pcall('SET', timeout, '1', 'PX', string.format('%.0f', lease))
if set.err then
  return set
end
redis.call('HSET', lock, 'mode', 'read', holder, 1)
redis.call('HDEL', lock, holder .. ':write')
if left <= 0 then
  redis.call('PEXPIRE', lock, string.format('%.0f', lease))
end

local told = true
for _, payload in ipairs({'1', '0'}) do
  told = type(redis.pcall('PUBLISH', channel, payload)) ~= 'table' and told
end
return {told and 1 or 2, ''}
