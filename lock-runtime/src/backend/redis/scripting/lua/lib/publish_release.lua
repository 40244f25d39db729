-- Fragment publish_release: publishes that a mutex is free.
--
-- Offers: publish_release(channel, payload), which returns the reply of the release: 1 no listener received the message
--         | 2 it could not be published
--         | 3 or more: two, and the number of listeners that received it
-- After: publish
-- Why: A process that releases a lock again and again, and is never refused, sees by this that other processes wait.

local function publish_release(channel, payload)
  local receivers = published(channel, payload)
  return receivers and (receivers > 0 and receivers + 2 or 1) or 2
end

