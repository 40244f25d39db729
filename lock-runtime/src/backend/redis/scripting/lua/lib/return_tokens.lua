-- Fragment unused: gives back tokens that were set aside for holds which never were.
--
-- Offers: give_back(fence, last, used), where `used` is the last token that anybody has, and `last` the last of those that
--         were set aside
-- After:
-- Why: A fence that is ahead of the clock has no tokens for the hand-overs of the next process: each of them would cost
--      it a round trip until the clock has caught up. The fence is set back only if it still has the
--      value at which the range ended. If another process has drawn a token since, the fence is higher, and no script
--      sets it back to that value. Tokens that are not given back cost time only, so failures are ignored.

local function give_back(fence, last, used)
  if fence and redis.pcall('GET', fence) == last then
    redis.pcall('SET', fence, used)
  end
end

