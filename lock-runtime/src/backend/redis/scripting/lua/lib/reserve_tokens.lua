-- Fragment reserve_tokens: writes a token, and reserves further tokens for later holders of the same process.
--
-- Offers: reserve_tokens(fence, token, base, spare), which returns the last reserved token, or the token itself if none
--         is reserved
-- After: digits
-- Why: The reserved tokens go up to `base` + `spare`. `base` is the time, or the token where a fence counts by one.
--      While the fence is ahead of the clock, no tokens are reserved: otherwise each request would push the fence on,
--      and no process could use the tokens that it reserved.

local function reserve_tokens(fence, token, base, spare)
  local last = token
  if base >= tonumber(token) then
    last = digits(base + spare)
  end
  redis.call('SET', fence, last)
  return last
end

