-- Fragment range: checks that a number may be used.
--
-- Offers: out_of_range(number, least, most, what), which returns an error or nil | LONGEST_LEASE in ms
-- After:
-- Why: The comparison also refuses NaN. Numbers that the client has checked are checked again before the first write: a
--      lock whose PEXPIRE is refused would stay for ever.

local LONGEST_LEASE = 86400000

local function out_of_range(number, least, most, what)
  if not (number and number >= least and number <= most and number % 1 == 0) then
    return redis.error_reply('ERR lock ' .. what .. ' out of range')
  end
end

