-- Fragment unused: gives back tokens that were set aside for holds which never were.
--
-- Offers: give_back(fence, last, used), where `used` is the last token that anybody has, and `last` the last of those that
--         were set aside
-- After:
-- Why: A fence that is ahead of the clock has no tokens for the hand-overs of the next process: each of them would cost
--      it a round trip until the clock has caught up. The fence is set back only if it is where the range ended:
--      whoever has drawn a token since has moved it further, and nothing moves it back to there. Not to give them back
--      costs time and nothing else, so nothing is an error.

local function give_back(fence, last, used)
  if fence and redis.pcall('GET', fence) == last then
    redis.pcall('SET', fence, used)
  end
end

