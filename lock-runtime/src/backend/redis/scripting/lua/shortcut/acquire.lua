-- Shortcut of acquire: the request came in time, and somebody else has the lock, or it is free and no token is set aside.
--
-- Uses: usually
-- Returns: the time in µs, which is the token where a fence is named | as acquire
-- Why: What is not as usual is left to the careful way.

local time = redis.call('TIME')
local now = time[1] .. string.sub('00000' .. time[2], -6)
if ARGV[4] == '0' and in_time(ARGV[2], ARGV[3], now) and (not ARGV[5] or redis.pcall('HLEN', KEYS[1]) == 1) then
  local answer = usually(KEYS[1], KEYS[2], ARGV[1], ARGV[2], now)
  if answer == now then
    return now
  elseif type(answer) == 'number' then
    return {'BUSY', answer, now}
  elseif answer then
    return {'OK', answer, now}
  end
end
