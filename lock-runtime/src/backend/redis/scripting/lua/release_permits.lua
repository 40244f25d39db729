-- Returns leased permits and wakes waiters.
--
-- Flags: allow-oom
-- Uses: digits, range, time, failed, refusal, counter, by_request, publish, publish_or_append
-- Keys: permits, leases
-- Args: ids, channel
-- Returns: {1} returned | {0, time_us} some of them were no longer leased; the others are returned. Each is followed by
--          channel and payload of a message that could not be published
-- Why: Only ids that are still leased count, so a second copy returns nothing. The count rises before the leases are
--      deleted, and falls again if the deletion is refused. A release does not make a semaphore that is gone, and a
--      semaphore that a request has set is deleted with its last lease.

local permits, leases, ids = KEYS[1], KEYS[2], ARGV[1]

local wrong = out_of_range(#ids / 16, 1, 1000, 'permits')
if wrong then
  return wrong
end
local own = {}
for i = 1, #ids / 16 do
  local id = string.sub(ids, 16 * i - 15, 16 * i)
  local score = redis.pcall('ZSCORE', leases, id)
  if failed(score) and not wrong_type(score) then
    return score
  end
  if type(score) == 'string' then
    own[#own + 1] = id
  end
end

local free = nil
if #own > 0 then
  local held, refused = count_at(permits)
  if refused and refused.err then
    return refused
  end
  if held then
    free = redis.pcall('INCRBY', permits, #own)
    if failed(free) then
      return free
    end
  end
  local gone = redis.pcall('ZREM', leases, unpack(own))
  if failed(gone) then
    if free then
      redis.call('INCRBY', permits, -#own)
    end
    return gone
  end
end

if free then
  delete_full(permits, leases, free)
end
local reply = #own * 16 < #ids and {0, digits(time_us())} or {1}
if free and free > 0 then
  publish_or_append(reply, ARGV[2], digits(free))
end
return reply
