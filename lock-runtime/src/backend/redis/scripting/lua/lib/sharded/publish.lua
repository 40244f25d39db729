-- Fragment publish: publishes a message to the listeners of a sharded channel.
--
-- Offers: published(channel, payload), the number of listeners that received it, or false if that was not possible
-- After:
-- Why: A refused message cannot undo the writes before it. The reply tells the client, which publishes it by itself, at
--      the node of the channel's slot: if the name has odd braces, that may be another node than the key's.

local function published(channel, payload)
  local receivers = redis.pcall('SPUBLISH', channel, payload)
  return type(receivers) == 'number' and receivers
end

