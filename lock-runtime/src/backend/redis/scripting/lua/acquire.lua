-- Takes a lock for one holder if nobody has it.
--
-- Flags:
-- Uses: usually, digits, range, refusal, fence, admitted, lease, holder, listeners, keeper, ahead
-- Keys: lock, fence?
-- Args: holder, lease_ms, not_after_us, counted, channel?, spare?
-- Returns: {'OK', token or '', time_us}, and with `spare` also last or '', subscribers or -1 unknown
--          | {'BUSY', pttl_ms, time_us} | {'KEPT', pttl_ms, time_us} | {'STALE', time_us} | {'FOREIGN', 'lock' or 'fence', why}
-- Why: A copy that arrives after not_after is refused, so nothing late can take a lock for a dead id.
--      The holder's own field means that this is a second copy: the count stays, the lease only grows, and the
--      token rises, for the reply that carried the first one is lost. No token is wanted where no fence is named.
--      Kept is as busy, by a holder that was asked to give the lock up, for it may not use it. Of many who wait for it,
--      few are to ask: the others are told that it is busy.
--      Where others of the process wait, the request is a look as well: tokens are set aside for them, and those who
--      listen to the channel are counted, as by handover.
--      A counted fence goes up by one, as Redisson's fenced lock counts; any other follows the clock.

local lock, fence = KEYS[1], KEYS[2]
local holder, lease, not_after = ARGV[1], tonumber(ARGV[2]), tonumber(ARGV[3])
local counted, channel, spare = ARGV[4] == '1', ARGV[5], ARGV[6] and tonumber(ARGV[6])

local wrong = out_of_range(lease, 1, LONGEST_LEASE, 'lease') or channel and out_of_range(spare, 0, 2000, 'spare')
local now, token, refused = admitted(wrong, not_after, fence, counted, spare)
if refused then
  return refused
end

local fields = redis.pcall('HLEN', lock)
local foreign = refusal(fields, 'lock', 'hash')
if foreign then
  return foreign
end

local function granted()
  local last = fence and set_aside(fence, token, counted and tonumber(token) or now, spare or 0) or ''
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
  redis.call('DEL', lock)
  return unleased
end
return reply
