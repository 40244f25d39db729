-- Takes plain permits of a semaphore, all of them or none.
--
-- Flags:
-- Uses: digits, range, refusal, fence, admitted, counter
-- Keys: permits
-- Args: how_many, not_after_us
-- Returns: {'OK', time_us} | {'BUSY', time_us} | {'STALE', time_us} | {'SHORT', ''} not set | {'FOREIGN', key, why}
-- Why: A plain permit names no holder, so a second copy would take permits again. So the request is sent once. It has a
--      date, so that it takes no permits long after the caller has gone.

local wanted, not_after = tonumber(ARGV[1]), tonumber(ARGV[2])
local now, _, late = admitted(out_of_range(wanted, 1, 1000, 'permits'), not_after)
if late then
  return late
end
local free, refused = count_at(KEYS[1])
if refused then
  return refused
end
if not free then
  return {'SHORT', ''}
end
if free < wanted then
  return {'BUSY', digits(now)}
end
redis.call('INCRBY', KEYS[1], -wanted)
return {'OK', digits(now)}
