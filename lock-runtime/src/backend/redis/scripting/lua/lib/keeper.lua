-- Fragment keeper: asks a holder that keeps its lock between its holds to give it up.
--
-- Offers: ask_keeper(holder), whether it is one, and was asked
-- After:
-- Why: Such a holder is one of ours (a uuid of version 8) with a number of 19 digits. Its name is hashed, for everybody may
--      read the control channel. A refused message costs the caller the time for which the lock is kept.

local function ask_keeper(holder)
  if #holder ~= 56 or string.sub(holder, 15, 15) ~= '8' then
    return false
  end
  local told = redis.pcall('PUBLISH', 'lock:control:released', 'wanted:' .. string.sub(redis.sha1hex(holder), 1, 32))
  return type(told) == 'number'
end

