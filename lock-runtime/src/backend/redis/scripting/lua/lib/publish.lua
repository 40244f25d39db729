-- Fragment publish: tells those who listen.
--
-- Offers: published(channel, payload), how many listeners heard it, or false if that was not allowed
-- After:
-- Why: A refused message cannot undo what was done before it. The caller is told, and publishes it by itself.

local function published(channel, payload)
  local heard = redis.pcall('PUBLISH', channel, payload)
  return type(heard) == 'number' and heard
end

