-- Fragment listeners: how many listen to a channel.
--
-- Offers: listeners(channel), -1 if that may not be asked
-- After:

local function listeners(channel)
  return redis.pcall('PUBSUB', 'NUMSUB', channel)[2] or -1
end

