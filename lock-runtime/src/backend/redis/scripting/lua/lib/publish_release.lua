-- Fragment publish_release: publishes that a mutex is free.
--
-- Offers: publish_release(channel), which returns the reply of the release: 1 no listener received the message
--         | 2 or more: one, and the number of listeners that received it
--         | {1, channel, payload} it could not be published
-- After: publish
-- Why: A process that releases a lock again and again, and is never refused, sees by this that other processes wait.
--      Redisson decodes the message as an integer, and ignores all but 0 and 1.

local function publish_release(channel)
  local receivers = published(channel, '0')
  return receivers and receivers + 1 or {1, channel, '0'}
end

