-- Releases locks, each by itself, and wakes waiters.
--
-- Flags: allow-oom
-- Uses: publish, publish_release
-- Keys: lock...
-- Args: (holder, channel)...
-- Returns: 1 if each was released and no listener received a message
--          | {answer...}, where an answer is: as release, if the lock was released
--          | 0 if the release has to be sent by itself
-- Why: As acquire_each.

local keys, given, try, answers = KEYS, ARGV, redis.pcall, nil
for i = 1, #keys do
  local at, answer = 2 * i - 1, 0
  if try('HDEL', keys[i], given[at]) == 1 then
    answer = publish_release(given[at + 1])
  end
  if answers then
    answers[i] = answer
  elseif answer ~= 1 then
    answers = {}
    for before = 1, i - 1 do
      answers[before] = 1
    end
    answers[i] = answer
  end
end
return answers or 1
