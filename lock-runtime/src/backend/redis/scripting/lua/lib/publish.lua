-- Fragment publish: publishes a message to the listeners of a channel.
--
-- Offers: published(channel, payload), the number of listeners that received it, or false if it was refused
-- After:
-- Why: A refused message cannot undo the writes before it. The reply tells the client, which publishes it by itself.

local function published(channel, payload)
  local receivers = redis.pcall('PUBLISH', channel, payload)
  return type(receivers) == 'number' and receivers
end

