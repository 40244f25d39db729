-- Fragment keeper: asks a holder that keeps its lock between its holds to give it up.
--
-- Offers: ask_keeper(holder, lock, now), whether it is one, and was asked
-- After: holder, listeners
-- Why: Its name is hashed, for everybody may read the control channel. Everybody hears the message, too: where more than
--      FEW processes wait, and listen to the lock's channel, some of them ask, by the microsecond, as often in all as
--      FEW would. A refused message costs the caller the time for which the lock is kept.

local function ask_keeper(holder, lock, now)
  if not keeps(holder) then
    return false
  end
  local FEW = 8
  local name = string.find(lock, '{', 1, true) and lock or '{' .. lock .. '}'
  local waiting = listeners('redisson_lock__channel:' .. name)
  if waiting > FEW and now % waiting >= FEW then
    return false
  end
  local told = redis.pcall('PUBLISH', 'lock:control:released', 'wanted:' .. string.sub(redis.sha1hex(holder), 1, 32))
  return type(told) == 'number'
end

