-- Fragment publish: tells those who listen to a sharded channel.
--
-- Offers: published(channel, payload), whether that was possible
-- After:
-- Why: A refused message cannot undo what was done before it. The caller is told, and publishes it by itself, where
--      the channel's slot is: that may be another node than the key's if the name has odd braces.

local function published(channel, payload)
  return type(redis.pcall('SPUBLISH', channel, payload)) ~= 'table'
end

