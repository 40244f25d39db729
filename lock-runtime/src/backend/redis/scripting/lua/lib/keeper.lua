-- Fragment keeper: asks a holder that keeps its lock between its turns to give the lock up.
--
-- Offers: ask_keeper(holder, lock, now), true if the holder keeps the lock, and was asked
-- After: holder, listeners
-- Why: The message names the holder by a hash, because every client may read the control channel. Every process also
--      receives the message. So if more than FEW processes wait, by the number of listeners to the lock's channel, the
--      microsecond decides which of their requests ask: in all, as many as those of FEW processes. If the message is
--      refused, the caller waits for as long as the lock is kept.

local function ask_keeper(holder, lock, now)
  if not may_keep(holder) then
    return false
  end
  local FEW = 8
  local name = string.find(lock, '{', 1, true) and lock or '{' .. lock .. '}'
  local waiting = listeners('redisson_lock__channel:' .. name)
  if waiting > FEW and now % waiting >= FEW then
    return false
  end
  local asked = redis.pcall('PUBLISH', 'lock:control:released', 'wanted:' .. string.sub(redis.sha1hex(holder), 1, 32))
  return type(asked) == 'number'
end

