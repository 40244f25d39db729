-- Fragment publish: tells those who listen.
--
-- Offers: published(channel, payload), whether that was allowed
-- After:
-- Why: A refused message cannot undo what was done before it. The caller is told, and publishes it by itself.

local function published(channel, payload)
  return type(redis.pcall('PUBLISH', channel, payload)) ~= 'table'
end

