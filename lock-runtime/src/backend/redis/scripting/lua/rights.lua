-- Says which rights a script lacked that was refused.
--
-- Flags: no-writes
-- Uses:
-- Keys:
-- Args: how_many_keys, key..., command...
-- Returns: {'+command' or '~key', ...}
-- Why: A server refuses a script without naming the key, Redis 7.0 without naming the command. The keys are arguments
--      here, or this script would be refused as well. Nothing is executed. Every question has a key where the command
--      has its first one: without it, Redis 7.0 looks beyond the end and crashes. A key that goes with some of the
--      commands is allowed, and then it is the others that are missing.

local keys, lacking, known = tonumber(ARGV[1]), {}, {}

local function lacks(right)
  if not known[right] then
    known[right] = true
    lacking[#lacking + 1] = right
  end
end

if not redis.acl_check_cmd('TIME') then
  lacks('+time')
end
for i = 2, keys + 1 do
  local refused, allowed = {}, false
  for j = keys + 2, #ARGV do
    if redis.acl_check_cmd(ARGV[j], ARGV[i]) then
      allowed = true
    else
      refused[#refused + 1] = '+' .. string.lower(ARGV[j])
    end
  end
  if allowed then
    for _, right in ipairs(refused) do
      lacks(right)
    end
  else
    lacks('~' .. ARGV[i])
  end
end
return lacking
