-- Fragment tell: tells many, and notes in the reply who could not be told.
--
-- Offers: tell(reply, channel, payload), which appends channel and payload if the message was refused
-- After: publish

local function tell(reply, channel, payload)
  if not published(channel, payload) then
    reply[#reply + 1] = channel
    reply[#reply + 1] = payload
  end
end

