-- Fragment publish: publishes a message to the listeners of a channel, sharded or classic.
--
-- Offers: published(channel, payload), the number of listeners that received it at least, or false if one of both
--         channels refused it
-- After:
-- Why: A refused message cannot undo the writes before it. The reply tells the client, which publishes it by itself;
--      one message too many does no harm.

local function published(channel, payload)
  local sharded = redis.pcall('SPUBLISH', channel, payload)
  local classic = redis.pcall('PUBLISH', channel, payload)
  return type(sharded) == 'number' and type(classic) == 'number' and math.max(sharded, classic)
end

