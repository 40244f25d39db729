-- Fragment listeners: counts the listeners of a sharded channel.
--
-- Offers: listeners(channel), -1 if the question is not allowed
-- After:

local function listeners(channel)
  return redis.pcall('PUBSUB', 'SHARDNUMSUB', channel)[2] or -1
end

