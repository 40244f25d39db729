-- Fragment admitted: the checks before a script acquires anything.
--
-- Offers: admitted(wrong, not_after, fence, counted, further), which returns the server's time in µs, the next token
--         ('' without a fence), and the reply of the script if it must not acquire anything
-- After: digits, refusal, fence
-- Why: `wrong` is the result of out_of_range for the numbers that the caller sent. A late copy cannot acquire a lock
--      for a caller that is gone. A request without a date counts as late. A counted fence goes up by one, any other
--      fence follows the clock.

local function admitted(wrong, not_after, fence, counted, further)
  local time = redis.call('TIME')
  local now = time[1] * 1000000 + time[2]
  if wrong or not (not_after and now <= not_after) then
    return now, nil, wrong or {'STALE', digits(now)}
  end
  return now, next_token(fence, counted and 1 or now, further)
end

