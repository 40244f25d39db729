-- Shortcut of acquire: the request came in time, and the lock is free or somebody else has it.
--
-- Uses:
-- Returns: the time in µs, which is the token where a fence is named | {'BUSY', pttl_ms, time_us}
-- Why: Nearly every acquire is one of these, and the careful way spends more on its fragments than on its commands. What
--      is not as usual is left to the careful way, before the first write or after it was undone.

local lock, fence = KEYS[1], KEYS[2]
local lease, not_after = tonumber(ARGV[2]), tonumber(ARGV[3])
local call, try = redis.call, redis.pcall
local time = call('TIME')
local now = time[1] .. string.sub('00000' .. time[2], -6)
local usual = lease and lease >= 1 and lease <= 86400000 and lease % 1 == 0 and ARGV[4] == '0'
if usual and not_after and tonumber(now) <= not_after then
  local fields = try('HLEN', lock)
  local last = fence and try('GET', fence)
  -- Sixteen digits until the year 2286: they compare as text.
  local known = not last or (type(last) == 'string' and #last == 16 and #now == 16 and string.find(last, '^%d+$'))
  if fields == 0 and known and (not last or last < now) then
    if fence then
      call('SET', fence, now)
    end
    call('HSET', lock, ARGV[1], 1)
    if try('PEXPIRE', lock, ARGV[2]) == 1 then
      return now
    end
    call('DEL', lock)
  elseif fields == 1 and known and (not last or last < '9007199254740991') then
    local hold = call('HGETALL', lock)
    if hold[1] ~= ARGV[1] and #hold[2] <= 15 and string.find(hold[2], '^[1-9]%d*$') then
      return {'BUSY', call('PTTL', lock), now}
    end
  end
end
