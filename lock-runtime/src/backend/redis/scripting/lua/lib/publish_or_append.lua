-- Fragment publish_or_append: publishes messages, and adds refused ones to the reply.
--
-- Offers: publish_or_append(reply, channel, payload), which appends channel and payload if the message was refused
--         | name_holders(reply, aliases), which names holders, 256 in a message, on the control channel, which is
--         never sharded; refused messages are appended as well
-- After: publish

local function publish_or_append(reply, channel, payload)
  if not published(channel, payload) then
    reply[#reply + 1] = channel
    reply[#reply + 1] = payload
  end
end

local function name_holders(reply, aliases)
  local channel = 'lock:control:released'
  for from = 1, #aliases, 256 do
    local payload = 'holders:' .. table.concat(aliases, '', from, math.min(from + 255, #aliases))
    if type(redis.pcall('PUBLISH', channel, payload)) == 'table' then
      reply[#reply + 1] = channel
      reply[#reply + 1] = payload
    end
  end
end

