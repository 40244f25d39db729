-- Shortcut of acquire: the lock is free, and the request came in time.
--
-- Uses:
-- Returns: the time in µs, which is the token where a fence is named
-- Why: Nearly every acquire is this one, and the careful way spends more on its fragments than on its commands. What
--      is not as usual is left to the careful way, before the first write or after it was undone.

local lock, fence = KEYS[1], KEYS[2]
local lease, not_after = tonumber(ARGV[2]), tonumber(ARGV[3])
local call, try = redis.call, redis.pcall
local time = call('TIME')
local now = time[1] .. string.sub('00000' .. time[2], -6)
local usual = lease and lease >= 1 and lease <= 86400000 and lease % 1 == 0 and ARGV[4] == '0'
if usual and not_after and tonumber(now) <= not_after and try('HLEN', lock) == 0 then
  local last = fence and try('GET', fence)
  -- Sixteen digits until the year 2286: they compare as text.
  if not last or (type(last) == 'string' and #last == 16 and #now == 16 and string.find(last, '^%d+$') and last < now) then
    if fence then
      call('SET', fence, now)
    end
    call('HSET', lock, ARGV[1], 1)
    if try('PEXPIRE', lock, ARGV[2]) == 1 then
      return now
    end
    call('DEL', lock)
  end
end

