-- Acquires the exclusive side of a read/write lock if no reader and no writer has it.
--
-- Flags:
-- Uses: digits, range, refusal, fence, admitted, holder, mode, lease, timeout_key, readers
-- Keys: lock, writer_waits, fence?
-- Args: holder, lease_ms, not_after_us, waits_ms
-- Returns: {'OK', token or '', time_us} | {'BUSY', pttl_ms, time_us} | {'STALE', time_us}
--          | {'FOREIGN' or 'FENCE', key, why}
-- Why: As acquire, in Redisson's form of a writer: a field `holder:write` beside `mode`. If all readers are dead by
--      their own leases, though the hash may outlive them, they do not keep the writer out. If there are more readers
--      than one script may look at, one of them may be alive, so all count as alive until the hash expires. A caller that
--      goes on waiting, and finds living readers, leaves writer_waits behind for the time that it waits, so that no
--      further reader of this library gets in. It leaves no field, because Redisson counts the fields.

local lock, writer_waits, fence = KEYS[1], KEYS[2], KEYS[3]
local field, lease, not_after = ARGV[1] .. ':write', tonumber(ARGV[2]), tonumber(ARGV[3])
local waits = tonumber(ARGV[4])

local wrong = out_of_range(lease, 1, LONGEST_LEASE, 'lease') or out_of_range(waits, 0, 60000, 'wait')
local now, token, refused = admitted(wrong, not_after, fence)
if refused then
  return refused
end

local mode, foreign = mode_of(lock)
if foreign then
  return foreign
end

if mode == 'write' and redis.call('HEXISTS', lock, field) == 1 then
  if fence then
    redis.call('SET', fence, token)
  end
  extend(lock, lease)
  return {'OK', token, digits(now)}
end
local reads
if mode == 'read' then
  local miscounted
  reads, miscounted = any_read(lock, may_live)
  if miscounted then
    return miscounted
  end
end
if mode == 'write' or reads then
  if mode == 'read' and waits > 0 and redis.call('PTTL', writer_waits) < waits then
    -- Only this library uses this key. Without the right to SET, the lock works, but readers may starve the writer.
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
local unleased = give_lease(lock, lease)
if unleased then
  redis.pcall('HDEL', lock, 'mode', field)
  return unleased
end
redis.pcall('DEL', writer_waits)
return {'OK', token, digits(now)}
