-- Fragment listeners: counts the listeners of a channel.
--
-- Offers: listeners(channel), -1 if the question is not allowed
-- After:

local function listeners(channel)
  return redis.pcall('PUBSUB', 'NUMSUB', channel)[2] or -1
end

