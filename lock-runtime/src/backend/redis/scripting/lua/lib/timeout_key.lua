-- Fragment timeout_key: the key that carries the lease of one read.
--
-- Offers: timeout_key(lock, reader, number), where `number` counts the holds of a reader
-- After:
-- Why: It is Redisson's name, in the lock's slot.

local function timeout_key(lock, reader, number)
  local base = string.find(lock, '{', 1, true) and lock or '{' .. lock .. '}'
  return base .. ':' .. reader .. ':rwlock_timeout:' .. number
end

