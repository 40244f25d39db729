-- Fragment told: tells those who listen that a mutex is free.
--
-- Offers: told(channel, payload), which is the reply of the release: 1 nobody heard it | 2 it could not be published
--         | 3 somebody heard it
-- After: publish
-- Why: Who releases a lock again and again, and is never refused, learns in this way that others wait.

local function told(channel, payload)
  local heard = published(channel, payload)
  return heard and (heard > 0 and 3 or 1) or 2
end

