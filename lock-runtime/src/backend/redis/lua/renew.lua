#!lua flags=allow-oom
-- Extends many leases, or looks whether the holds are still there.
--
-- Keys: lock...
-- Args: (holder, ttl_ms)...
-- Returns: {1 held | 0 not the holder | 'what went wrong', ...} in the order of the keys
-- Why: GT, so that a late copy never shortens a lease. A ttl of 0 only looks. Each key stands alone: what is wrong
--      with one says nothing about the others. A key is never created.

for i = 1, #KEYS do
  local ttl = tonumber(ARGV[2 * i])
  if not (ttl and ttl >= 0 and ttl <= 86400000 and ttl % 1 == 0) then
    return redis.error_reply('ERR lock lease out of range')
  end
end

local answers = {}
for i, lock in ipairs(KEYS) do
  local own = redis.pcall('HEXISTS', lock, ARGV[2 * i - 1])
  local ttl = string.format('%.0f', tonumber(ARGV[2 * i]))
  if type(own) == 'table' then
    own = string.find(own.err, 'WRONGTYPE', 1, true) and 0 or own.err
  elseif own == 1 and ttl ~= '0' then
    local longer = redis.pcall('PEXPIRE', lock, ttl, 'GT')
    if longer == 0 and redis.call('PTTL', lock) == -1 then
      longer = redis.pcall('PEXPIRE', lock, ttl)
    end
    if type(longer) == 'table' then
      own = longer.err
    end
  end
  answers[i] = own
end
return answers
