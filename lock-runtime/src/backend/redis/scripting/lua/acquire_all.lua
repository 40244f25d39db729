-- Acquires several locks, each for a holder of its own, if all of them are free.
--
-- Flags:
-- Uses: digits, range, refusal, fence, admitted, lease, holder
-- Keys: (lock, fence?)...
-- Args: not_after_us, (holder, lease_ms, how the fence counts?)...
-- Returns: {'OK', time_us, token or '', ...} | {'BUSY', time_us} | {'KEPT', time_us} | {'STALE', time_us}
--          | {'FOREIGN' or 'FENCE', key, why}
-- Why: As acquire, for each lock: the request has a date, and a second copy acquires nothing twice. The script checks
--      all locks before its first write, so that it acquires none if it cannot acquire all. Locks of one slot share a
--      fence, so each token is made when its lock is acquired. KEPT is BUSY where every other holder may only be
--      keeping its lock: the caller then asks for each lock by itself, and those requests ask the keepers.

local now, _, late = admitted(nil, tonumber(ARGV[1]))
if late then
  return late
end

local items = {}
local key = 1
for i = 1, (#ARGV - 1) / 3 do
  local item = {
    lock = KEYS[key],
    holder = ARGV[3 * i - 1],
    lease = tonumber(ARGV[3 * i]),
    counts = ARGV[3 * i + 1],
  }
  key = key + 1
  if item.counts ~= '' then
    item.fence = KEYS[key]
    key = key + 1
  end
  items[i] = item
end

local busy, kept = false, false
for i, item in ipairs(items) do
  local wrong = out_of_range(item.lease, 1, LONGEST_LEASE, 'lease')
  if wrong then
    return wrong
  end
  -- All locks of the set may share this fence, and each of them raises it once.
  local _, refused = next_token(item.fence, now, #items)
  if refused then
    return refused
  end
  local fields = redis.pcall('HLEN', item.lock)
  local foreign = refusal(fields, item.lock, 'hash')
  if foreign then
    return foreign
  end
  item.own = fields > 0 and redis.call('HEXISTS', item.lock, item.holder) == 1
  if fields > 0 and not item.own then
    local other, _, miscounted = sole_holder(item.lock, fields)
    if miscounted then
      return miscounted
    end
    if may_keep(other) then
      kept = true
    else
      busy = true
    end
  end
end
if busy or kept then
  return {busy and 'BUSY' or 'KEPT', digits(now)}
end

local reply = {'OK', digits(now)}
for i, item in ipairs(items) do
  local token = next_token(item.fence, item.counts == 'by one' and 1 or now)
  local fenced = item.fence and redis.pcall('SET', item.fence, token) or {}
  local refused = fenced.err and fenced
  -- A second copy never shortens a lease.
  if not refused and not (item.own and redis.call('PTTL', item.lock) >= item.lease) then
    local set = redis.pcall('HSET', item.lock, item.holder, 1)
    refused = type(set) == 'table' and set or give_lease(item.lock, item.lease)
  end
  if refused then
    -- If one lock cannot be acquired, none is; and a hash without a lease would stay for ever.
    for j = 1, i do
      redis.pcall('HDEL', items[j].lock, items[j].holder)
    end
    return refused
  end
  reply[i + 2] = token
end
return reply
