-- Fragment return_tokens: returns reserved tokens that no hold has used.
--
-- Offers: return_tokens(fence, last, used), where `used` is the last token that a hold has, and `last` the last reserved
--         token
-- After:
-- Why: A fence that is ahead of the clock has no tokens to reserve for the next process, so each hand-over would cost
--      that process a round trip until the clock has caught up. The fence is set back only if it still has the value at
--      which the range ended. If another process has drawn a token since, the fence is higher, and no script sets it
--      back to that value. Tokens that are not returned cost only time, so failures are ignored.

local function return_tokens(fence, last, used)
  if fence and redis.pcall('GET', fence) == last then
    redis.pcall('SET', fence, used)
  end
end

