-- Fragment time: the server's time.
--
-- Offers: time_us()
-- After:

local function time_us()
  local time = redis.call('TIME')
  return time[1] * 1000000 + time[2]
end

