-- Shortcut of acquire: the request came in time, and another holder has the lock, or the lock is free and no tokens are
-- to be reserved.
--
-- Uses: common_case
-- Returns: the time in µs, which is the token where a fence is named | as acquire
-- Why: Any other case is left to the full script.

local time = redis.call('TIME')
local now = time[1] .. string.sub('00000' .. time[2], -6)
if ARGV[4] == '0' and in_time(ARGV[2], ARGV[3], now) and (not ARGV[5] or redis.pcall('HLEN', KEYS[1]) == 1) then
  local answer = common_case(KEYS[1], KEYS[2], ARGV[1], ARGV[2], now)
  if answer == now then
    return now
  elseif type(answer) == 'number' then
    return {'BUSY', answer, now}
  elseif answer then
    return {'OK', answer, now}
  end
end
