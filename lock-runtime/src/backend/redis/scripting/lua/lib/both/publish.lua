-- Fragment publish: tells those who listen, be it to a sharded channel or to a classic one.
--
-- Offers: published(channel, payload), how many listeners heard it at least, or false if one of both was not possible
-- After:
-- Why: A refused message cannot undo what was done before it. The caller is told, and publishes it by itself: one
--      message too many does no harm.

local function published(channel, payload)
  local sharded = redis.pcall('SPUBLISH', channel, payload)
  local classic = redis.pcall('PUBLISH', channel, payload)
  return type(sharded) == 'number' and type(classic) == 'number' and math.max(sharded, classic)
end

