-- Takes a lock for one holder if nobody has it or waits for it longer. Else puts the holder on the list of those that wait.
--
-- Flags:
-- Uses: usually, digits, range, refusal, fence, admitted, lease, holder, listeners, keeper, publish, failed, waiting, ahead
-- Keys: lock, waiting, fence?
-- Args: holder, lease_ms, not_after_us, counted, channel, trip_us, spare?
-- Returns: as acquire
-- Why: As acquire, but the fence is looked at only where a token is given. A lock that is reserved for the holder has the
--      holder's field. A free lock goes to the first on the list, also if another one asks: the first one has missed its
--      message, or a lease has ended. It is left alone while it is left to clients that are not on the list. These
--      ask by acquire, and take what is free.

local lock, waiting, fence = KEYS[1], KEYS[2], KEYS[3]
local holder, lease, not_after, channel = ARGV[1], tonumber(ARGV[2]), tonumber(ARGV[3]), ARGV[5]

local counted, spare = ARGV[4] == '1', ARGV[7] and tonumber(ARGV[7])

local wrong = out_of_range(lease, 1, LONGEST_LEASE, 'lease') or ARGV[7] and out_of_range(spare, 0, 2000, 'spare')
local now, _, late = admitted(wrong, not_after)
if late then
  return late
end

local fields = redis.pcall('HLEN', lock)
local foreign = refusal(fields, 'lock', 'hash')
if foreign then
  return foreign
end
local has_it = fields > 0 and redis.call('HEXISTS', lock, holder) == 1
if fields > 0 and not has_it then
  local other, _, miscounted = sole_holder(lock, fields)
  if miscounted then
    return miscounted
  end
  local unlisted = put(waiting, holder, now, ARGV[6])
  if unlisted then
    return unlisted
  end
  return {ask_keeper(other, lock, now) and 'KEPT' or 'BUSY', redis.call('PTTL', lock), digits(now)}
end

if not has_it then
  local first, left_until, far = first_of(waiting)
  if failed(left_until) then
    return left_until
  end
  -- A clock that was set back would have it left for long.
  local is_left = left_until and left_until > now and left_until <= now + LEFT_AT_MOST
  if is_left or first and first ~= holder then
    local unlisted = put(waiting, holder, now, ARGV[6])
    if unlisted then
      return unlisted
    end
    local left = is_left and math.ceil((left_until - now) / 1000)
      or reserve_first(lock, waiting, channel, first, far, holder)
    if left then
      return {'BUSY', left, digits(now)}
    end
  end
end

local token, refused = next_token(fence, counted and 1 or now, spare)
if refused then
  return refused
end
local last = fence and set_aside(fence, token, counted and tonumber(token) or now, spare or 0) or ''
if has_it then
  extend(lock, lease)
else
  redis.call('HSET', lock, holder, 1)
  local unleased = give_lease(lock, lease)
  if unleased then
    redis.call('DEL', lock)
    return unleased
  end
  redis.pcall('ZREM', waiting, holder)
end
return {'OK', token, digits(now), spare and last, spare and listeners(channel)}
