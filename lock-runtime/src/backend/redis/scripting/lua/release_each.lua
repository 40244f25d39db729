-- Gives locks back, each by itself, and wakes waiters.
--
-- Flags: allow-oom
-- Uses: publish
-- Keys: lock...
-- Args: (holder, channel)..., payload
-- Returns: answer...: 1 released | 2 released, but the message could not be published | 0 if it has to be asked by itself
-- Why: As acquire_each.

local answers = {}
for i = 1, #KEYS do
  local at = 2 * i
  if redis.pcall('HDEL', KEYS[i], ARGV[at - 1]) == 1 then
    answers[i] = published(ARGV[at], ARGV[#ARGV]) and 1 or 2
  else
    answers[i] = 0
  end
end
return answers
