-- Fragment admitted: what is asked before anything is taken.
--
-- Offers: admitted(wrong, not_after, fence, counted, further), the server's time in µs, the token that follows ('' without
--         a fence), and what the script returns if nothing is to be taken
-- After: digits, refusal, fence
-- Why: `wrong` is what out_of_range says of the numbers that the caller sent. Nothing late can take a lock for a caller who
--      is gone. No date is a date that is past. A counted fence goes up by one, any other follows the clock.

local function admitted(wrong, not_after, fence, counted, further)
  local time = redis.call('TIME')
  local now = time[1] * 1000000 + time[2]
  if wrong or not (not_after and now <= not_after) then
    return now, nil, wrong or {'STALE', digits(now)}
  end
  return now, next_token(fence, counted and 1 or now, further)
end

