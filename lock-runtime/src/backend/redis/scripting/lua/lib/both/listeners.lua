-- Fragment listeners: how many listen to a channel, be it sharded or classic.
--
-- Offers: listeners(channel), -1 if that may not be asked
-- After:
-- Why: A client that listens to both is counted once, so the larger number counts.

local function listeners(channel)
  local classic = redis.pcall('PUBSUB', 'NUMSUB', channel)[2] or -1
  return math.max(classic, redis.pcall('PUBSUB', 'SHARDNUMSUB', channel)[2] or -1)
end

