-- Fragment publish: tells those who listen to a sharded channel.
--
-- Offers: published(channel, payload), how many listeners heard it, or false if that was not possible
-- After:
-- Why: A refused message cannot undo what was done before it. The caller is told, and publishes it by itself, where
--      the channel's slot is: that may be another node than the key's if the name has odd braces.

local function published(channel, payload)
  local heard = redis.pcall('SPUBLISH', channel, payload)
  return type(heard) == 'number' and heard
end

