-- Acquires a lock for one holder if no other holder has it.
--
-- Flags:
-- Uses: common_case, digits, range, refusal, fence, admitted, lease, holder, listeners, keeper, reserve_tokens
-- Keys: lock, fence?
-- Args: holder, lease_ms, not_after_us, counted, channel?, spare?
-- Returns: {'OK', token or '', time_us}, and with `spare` also last or '', subscribers or -1 unknown
--          | {'BUSY', pttl_ms, time_us} | {'KEPT', pttl_ms, time_us} | {'STALE', time_us}
--          | {'FOREIGN' or 'FENCE', key, why}
-- Why: A copy that arrives after not_after is refused, so no late copy can acquire the lock for a dead id. If the hash
--      already has the holder's field, this is a second copy: the count stays, the lease can only grow, and the token
--      rises, because the reply with the first token is lost. Without a fence, no token is wanted. KEPT is BUSY where
--      the holder may only be keeping the lock, and was asked to give it up; where many processes wait, most of their
--      requests do not ask, and get BUSY. With `spare`, other callers of the process wait: tokens are reserved for
--      them, and the subscribers of the channel are counted, as handover does. A counted fence goes up by one, as that
--      of Redisson's fenced lock; any other fence follows the clock.

local lock, fence = KEYS[1], KEYS[2]
local holder, lease, not_after = ARGV[1], tonumber(ARGV[2]), tonumber(ARGV[3])
local counted, channel, spare = ARGV[4] == '1', ARGV[5], ARGV[6] and tonumber(ARGV[6])

local wrong = out_of_range(lease, 1, LONGEST_LEASE, 'lease') or channel and out_of_range(spare, 0, 2000, 'spare')
local now, token, refused = admitted(wrong, not_after, fence, counted, spare)
if refused then
  return refused
end

local fields = redis.pcall('HLEN', lock)
local foreign = refusal(fields, lock, 'hash')
if foreign then
  return foreign
end

local function granted()
  local last = fence and reserve_tokens(fence, token, counted and tonumber(token) or now, spare or 0) or ''
  if not channel then
    return {'OK', token, digits(now)}
  end
  return {'OK', token, digits(now), last, listeners(channel)}
end

if fields > 0 then
  if redis.call('HEXISTS', lock, holder) == 1 then
    local reply = granted()
    extend(lock, lease)
    return reply
  end
  local other, _, miscounted = sole_holder(lock, fields)
  if miscounted then
    return miscounted
  end
  return {ask_keeper(other, lock, now) and 'KEPT' or 'BUSY', redis.call('PTTL', lock), digits(now)}
end

local reply = granted()
redis.call('HSET', lock, holder, 1)
local unleased = give_lease(lock, lease)
if unleased then
  redis.pcall('HDEL', lock, holder)
  return unleased
end
return reply
