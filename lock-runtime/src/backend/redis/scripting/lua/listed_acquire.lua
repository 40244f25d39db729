-- Acquires a lock for one holder if no other holder has it, and no other process has waited longer. Otherwise puts the
-- holder on the waiting list.
--
-- Flags:
-- Uses: common_case, digits, range, refusal, fence, admitted, lease, holder, listeners, keeper, publish, failed, waiting, reserve_tokens
-- Keys: lock, waiting, fence?
-- Args: holder, lease_ms, not_after_us, counted, channel, spare?
-- Returns: as acquire
-- Why: As acquire, but the fence is read only where a token is given. A lock that is reserved for the holder has the
--      holder's field. A free lock is reserved for the first holder on the list even if another one asks: then either
--      the first holder has missed its message, or a lease has ended. While the lock is left to clients that are not on
--      the list, the script does not reserve it. Those clients ask by acquire, which acquires any free lock.

local lock, waiting, fence = KEYS[1], KEYS[2], KEYS[3]
local holder, lease, not_after, channel = ARGV[1], tonumber(ARGV[2]), tonumber(ARGV[3]), ARGV[5]

local counted, spare = ARGV[4] == '1', ARGV[6] and tonumber(ARGV[6])

local wrong = out_of_range(lease, 1, LONGEST_LEASE, 'lease') or ARGV[6] and out_of_range(spare, 0, 2000, 'spare')
local now, _, late = admitted(wrong, not_after)
if late then
  return late
end

local fields = redis.pcall('HLEN', lock)
local foreign = refusal(fields, lock, 'hash')
if foreign then
  return foreign
end
local has_it = fields > 0 and redis.call('HEXISTS', lock, holder) == 1
if fields > 0 and not has_it then
  local other, _, miscounted = sole_holder(lock, fields)
  if miscounted then
    return miscounted
  end
  local unlisted = put(waiting, holder, now)
  if unlisted then
    return unlisted
  end
  return {ask_keeper(other, lock, now) and 'KEPT' or 'BUSY', redis.call('PTTL', lock), digits(now)}
end

if not has_it then
  local first, left_until = first_of(waiting)
  if failed(left_until) then
    return left_until
  end
  -- After the clock was set back, `left_until` may be far ahead: then it does not count.
  local is_left = left_until and left_until > now and left_until <= now + LEFT_AT_MOST
  if is_left or first and first ~= holder then
    local unlisted = put(waiting, holder, now)
    if unlisted then
      return unlisted
    end
    local left = is_left and math.ceil((left_until - now) / 1000)
      or reserve_first(lock, waiting, channel, first, now, holder) and RESERVED
    if left then
      return {'BUSY', left, digits(now)}
    end
  end
end

local token, refused = next_token(fence, counted and 1 or now, spare)
if refused then
  return refused
end
local last = fence and reserve_tokens(fence, token, counted and tonumber(token) or now, spare or 0) or ''
if has_it then
  extend(lock, lease)
else
  redis.call('HSET', lock, holder, 1)
  local unleased = give_lease(lock, lease)
  if unleased then
    redis.pcall('HDEL', lock, holder)
    return unleased
  end
  redis.pcall('ZREM', waiting, holder)
end
return {'OK', token, digits(now), spare and last, spare and listeners(channel)}
