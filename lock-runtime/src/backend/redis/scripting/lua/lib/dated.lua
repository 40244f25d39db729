-- Fragment dated: refuses a request that arrives too late.
--
-- Offers: dated(not_after), the server's time in µs, and the reply if that is past not_after
-- After: digits
-- Why: Nothing late can take a lock for a caller who is gone. No date is a date that is past.

local function dated(not_after)
  local time = redis.call('TIME')
  local now = time[1] * 1000000 + time[2]
  if not (not_after and now <= not_after) then
    return now, {'STALE', digits(now)}
  end
  return now
end

