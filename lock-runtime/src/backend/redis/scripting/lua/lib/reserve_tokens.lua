-- Fragment ahead: writes a token, and sets some more aside for later holders of the same process.
--
-- Offers: set_aside(fence, token, base, spare), the last of them, which is the token if there are none
-- After: digits
-- Why: They are at most `spare` more than `base`, which is the time, or the token where a fence counts by one. None are set
--      aside while the fence is ahead of the clock: else each request would push it on, and nobody could use what it set
--      aside.

local function set_aside(fence, token, base, spare)
  local last = token
  if base >= tonumber(token) then
    last = digits(base + spare)
  end
  redis.call('SET', fence, last)
  return last
end

