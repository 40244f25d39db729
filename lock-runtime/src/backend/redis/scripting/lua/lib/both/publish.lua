-- Fragment publish: tells those who listen, be it to a sharded channel or to a classic one.
--
-- Offers: published(channel, payload), whether both was possible
-- After:
-- Why: A refused message cannot undo what was done before it. The caller is told, and publishes it by itself: one
--      message too many does no harm.

local function published(channel, payload)
  local sharded = type(redis.pcall('SPUBLISH', channel, payload)) ~= 'table'
  return type(redis.pcall('PUBLISH', channel, payload)) ~= 'table' and sharded
end

