-- Takes locks for holders of their own: each by itself, if all is as usual.
--
-- Flags:
-- Uses: usually
-- Keys: (lock, fence?)...
-- Args: (holder, lease_ms, not_after_us, whether a fence is named)...
-- Returns: {time_us, answer...}: the token, or the time where no fence is named | the pttl_ms of another holder
--          | false if it has to be asked by itself: nothing is left of it
-- Why: Requests that were made at the same time share the cost of a script. One that fails is no concern of the others.

local time = redis.call('TIME')
local now = time[1] .. string.sub('00000' .. time[2], -6)
local answers, key = {now}, 1
for i = 1, #ARGV, 4 do
  local lock, fence = KEYS[key], nil
  if ARGV[i + 3] == '1' then
    key = key + 1
    fence = KEYS[key]
  end
  key = key + 1
  answers[#answers + 1] = usually(lock, fence, ARGV[i], ARGV[i + 1], ARGV[i + 2], now)
end
return answers
