-- Shortcut of handover: `from` holds the lock, and the token follows the clock.
--
-- Uses: listeners
-- Returns: as handover
-- Why: As for acquire. A second copy finds that `from` is gone.

local lock, fence = KEYS[1], KEYS[2]
local lease = tonumber(ARGV[3])
local call, try = redis.call, redis.pcall
local usual = lease and lease >= 1 and lease <= 86400000 and lease % 1 == 0 and ARGV[5] == '0' and ARGV[6] == '1900'
if usual and try('HEXISTS', lock, ARGV[1]) == 1 then
  local time = call('TIME')
  local now = time[1] .. string.sub('00000' .. time[2], -6)
  local last = fence and try('GET', fence)
  if not last or (type(last) == 'string' and #last == 16 and #now == 16 and string.find(last, '^%d+$') and last < now) then
    local ahead = fence and string.format('%.0f', tonumber(now) + 1900) or ''
    if fence then
      call('SET', fence, ahead)
    end
    if try('PEXPIRE', lock, ARGV[3]) == 1 then
      call('HSET', lock, ARGV[2], 1)
      call('HDEL', lock, ARGV[1])
      return {'OK', fence and now or '', ahead, now, listeners(ARGV[4])}
    end
  end
end

