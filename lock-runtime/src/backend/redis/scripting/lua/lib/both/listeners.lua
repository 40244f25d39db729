-- Fragment listeners: counts the listeners of a channel, sharded or classic.
--
-- Offers: listeners(channel), -1 if the question is not allowed
-- After:
-- Why: A client that listens to both channels is to count once, so the larger number counts.

local function listeners(channel)
  local classic = redis.pcall('PUBSUB', 'NUMSUB', channel)[2] or -1
  return math.max(classic, redis.pcall('PUBSUB', 'SHARDNUMSUB', channel)[2] or -1)
end

