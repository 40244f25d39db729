-- Fragment tell: tells many, and notes in the reply who could not be told.
--
-- Offers: tell(reply, channel, payload), which appends channel and payload if the message was refused
--         | name(reply, channel, aliases), which names holders, 256 to a message, on a channel of the whole store, which
--           is never sharded; refused messages as above
-- After: publish

local function tell(reply, channel, payload)
  if not published(channel, payload) then
    reply[#reply + 1] = channel
    reply[#reply + 1] = payload
  end
end

local function name(reply, channel, aliases)
  for from = 1, #aliases, 256 do
    local payload = 'holders:' .. table.concat(aliases, '', from, math.min(from + 255, #aliases))
    if type(redis.pcall('PUBLISH', channel, payload)) == 'table' then
      reply[#reply + 1] = channel
      reply[#reply + 1] = payload
    end
  end
end

