-- Shortcut of listed_acquire: the lock is reserved for the holder, and no tokens are to be reserved; or another holder
-- has the lock.
--
-- Uses: common_case
-- Returns: the time in µs, which is the token where a fence is named | as acquire
-- Why: As for acquire. The field of a reservation has the count 1.

local try, lock, fence = redis.pcall, KEYS[1], KEYS[3]
local time = redis.call('TIME')
local now = time[1] .. string.sub('00000' .. time[2], -6)
if ARGV[4] == '0' and in_time(ARGV[2], ARGV[3], now) and try('HLEN', lock) == 1 then
  local hold = try('HGETALL', lock)
  if hold[1] == ARGV[1] and hold[2] == '1' and not ARGV[6] then
    local last = fence and try('GET', fence)
    if not last or is_token(last) then
      local token = last and last >= now and string.format('%.0f', tonumber(last) + 1) or now
      if try('PEXPIRE', lock, ARGV[2], 'GT') == 1 then
        if fence then
          redis.call('SET', fence, token)
        end
        return token == now and now or {'OK', token, now}
      end
    end
  elseif hold[1] ~= ARGV[1] and #hold[1] ~= 56 and #hold[2] <= 15 and string.find(hold[2], '^[1-9]%d*$') then
    -- A holder id of 56 characters may keep the lock: the full script has to ask it.
    local left = try('PTTL', lock)
    if type(left) == 'number' and type(try('ZADD', KEYS[2], 'LT', now, ARGV[1])) == 'number' then
      try('PEXPIRE', KEYS[2], '5000')
      return {'BUSY', left, now}
    end
  end
end

