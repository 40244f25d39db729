-- Acquires locks for holders of their own, each by itself, if its case is the common one.
--
-- Flags:
-- Uses: common_case
-- Keys: lock..., fence...
-- Args: lease_ms, not_after_us, holder...
-- Returns: time_us: each was acquired, and the time is its token
--          | {time_us, answer...}, where an answer is: the token, or the time where no fences are named
--          | the pttl_ms of another holder
--          | false if the script changed nothing for the request, and it has to be sent by itself
-- Why: Requests that were made at the same time share the cost of a script. If one of them fails, the others do not.
--      They all want the same lease, and either all name fences or none does. Their date is the earliest of their
--      dates. A request that is late by that date may be in time by its own, and is then sent by itself. One EXISTS for
--      all keys replaces a question for each key. A user need not have that right, so the script asks for it first.

local time = redis.call('TIME')
local now = time[1] .. string.sub('00000' .. time[2], -6)
local keys, given, lease, count = KEYS, ARGV, ARGV[1], #ARGV - 2
local timely = in_time(lease, given[2], now) or false
local free, answer, known_token, answers = false, false, nil, nil
if timely then
  -- The question for a right raises an error if the server does not know the command.
  local asked, may = pcall(redis.acl_check_cmd, 'EXISTS', keys[1])
  free = asked and may and redis.pcall('EXISTS', unpack(keys, 1, count)) == 0
end
for i = 1, count do
  if timely then
    answer, known_token = common_case(keys[i], keys[count + i], given[i + 2], lease, now, free, known_token)
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
