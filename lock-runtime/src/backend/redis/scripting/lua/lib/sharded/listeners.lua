-- Fragment listeners: how many listen to a sharded channel.
--
-- Offers: listeners(channel), -1 if that may not be asked
-- After:

local function listeners(channel)
  return redis.pcall('PUBSUB', 'SHARDNUMSUB', channel)[2] or -1
end

