-- Takes locks for holders of their own: each by itself, if all is as usual.
--
-- Flags:
-- Uses: usually
-- Keys: lock..., fence...
-- Args: lease_ms, not_after_us, holder...
-- Returns: time_us: each was taken, and the time is its token | {time_us, answer...}: the token, or the time where no
--          fences are named | the pttl_ms of another holder | false if it has to be asked by itself: nothing is left of it
-- Why: Requests that were made at the same time share the cost of a script. One that fails is no concern of the others.
--      They want locks for as long as each other, and all of them have fences or none. The date is the earliest of theirs:
--      what is late by it may be in time by itself, and is asked so. One EXISTS for all of them takes the place of a
--      question about each; it is a right that not everybody has to have.

local time = redis.call('TIME')
local now = time[1] .. string.sub('00000' .. time[2], -6)
local keys, given, lease, count = KEYS, ARGV, ARGV[1], #ARGV - 2
local timely = in_time(lease, given[2], now) or false
local free, answer, fine, answers = false, false, nil, nil
if timely then
  -- Asking is an error where the server has no command of that name.
  local asked, may = pcall(redis.acl_check_cmd, 'EXISTS', keys[1])
  free = asked and may and redis.pcall('EXISTS', unpack(keys, 1, count)) == 0
end
for i = 1, count do
  if timely then
    answer, fine = usually(keys[i], keys[count + i], given[i + 2], lease, now, free, fine)
  end
  if answers then
    answers[i + 1] = answer
  elseif answer ~= now then
    answers = {now}
    for before = 1, i - 1 do
      answers[before + 1] = now
    end
    answers[i + 1] = answer
  end
end
return answers or now
