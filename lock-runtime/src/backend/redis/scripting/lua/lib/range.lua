-- Fragment range: whether a number may be used.
--
-- Offers: out_of_range(number, least, most, what), an error or nil | LONGEST_LEASE in ms
-- After:
-- Why: Compared so that NaN fails, too. What the caller checked is checked again before the first write: a lock whose
--      PEXPIRE is refused would stay for ever.

local LONGEST_LEASE = 86400000

local function out_of_range(number, least, most, what)
  if not (number and number >= least and number <= most and number % 1 == 0) then
    return redis.error_reply('ERR lock ' .. what .. ' out of range')
  end
end

