-- Fragment tell: tells many, and notes in the reply who could not be told.
--
-- Offers: tell(reply, channel, payload), which appends channel and payload if the message was refused
--         | announce(reply, channel, payload), the same on a channel of the whole store, which is never sharded
-- After: publish

local function tell(reply, channel, payload)
  if not published(channel, payload) then
    reply[#reply + 1] = channel
    reply[#reply + 1] = payload
  end
end

local function announce(reply, channel, payload)
  if type(redis.pcall('PUBLISH', channel, payload)) == 'table' then
    reply[#reply + 1] = channel
    reply[#reply + 1] = payload
  end
end

