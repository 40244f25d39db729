-- Fragment timeout_key: the key that carries the lease of one read.
--
-- Offers: timeout_key(lock, reader, number), of a reader's first, second ... hold
-- After:
-- Why: Redisson's name, in the lock's slot.

local function timeout_key(lock, reader, number)
  local base = string.find(lock, '{', 1, true) and lock or '{' .. lock .. '}'
  return base .. ':' .. reader .. ':rwlock_timeout:' .. number
end

