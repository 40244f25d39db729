-- Finds the rights that a refused script lacked.
--
-- Flags: no-writes
-- Uses:
-- Keys:
-- Args: how_many_keys, key..., command...
-- Returns: {'+command' or '~key', ...}
-- Why: A server refuses a script without naming the key, and Redis 7.0 does not name the command either. The keys are
--      arguments here, because the server would refuse this script as well if they were keys. Nothing is executed.
--      Every question passes a key in the place of the command's first key: without it, Redis 7.0 reads beyond the end
--      and crashes. If some of the commands are allowed with a key, the key is allowed, and the other commands are
--      missing.

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
