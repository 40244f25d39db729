-- Fragment common_case: the common case of an acquire, in few commands: the lock is free, or another holder has it.
--
-- Offers: in_time(lease, not_after, now), true if the lease is allowed, and the request came in time
--         | common_case(lock, fence, holder, lease, now, free, known_token), which returns the token (or the time where
--         no fence is named) and the token before it
--         | the PTTL of the other holder's lease
--         | false in any other case: then the lock is as it was. `free`: no key existed when the script began;
--         `known_token`: a text that is known to be a token.
-- After:
-- Why: Nearly every acquire is the common case, and the full script spends more on its fragments than on its commands.
--      No command here raises an error, because other requests may share the script. In such a script, an earlier
--      request may have acquired the lock since the check of all keys: then its key has a lease, and NX gives it no
--      other. Locks that were acquired together have one token, so a later group of the same locks finds that token
--      again, as `known_token`.

local function in_time(lease, not_after, now)
  local ms, date = tonumber(lease), tonumber(not_after)
  return ms and ms >= 1 and ms <= 86400000 and ms % 1 == 0 and date and tonumber(now) <= date and #now == 16
end

-- A token has sixteen digits until the year 2286, so tokens compare as text. No reply but a text has this length.
local function is_token(token)
  return #token == 16 and string.find(token, '^%d+$') and token < '9007199254740991'
end

local function common_case(lock, fence, holder, lease, now, free, known_token)
  local try = redis.pcall
  local fields = free and 0 or try('HLEN', lock)
  if fields == 0 then
    local token, last = now, fence and try('SET', fence, now, 'GET')
    if last and last ~= known_token and not is_token(last) then
      -- The old value is not a token: write it back.
      return type(last) == 'string' and try('SET', fence, last) and false
    elseif last and last >= now then
      token = string.format('%.0f', tonumber(last) + 1)
      try('SET', fence, token)
    end
    if try('HSET', lock, holder, '1') == 1 then
      if (free and try('PEXPIRE', lock, lease, 'NX') or try('PEXPIRE', lock, lease)) == 1 then
        return token, last
      end
      try('HDEL', lock, holder)
    end
  elseif fields == 1 then
    local last, hold = fence and try('GET', fence), try('HGETALL', lock)
    -- A holder id of 56 characters may keep the lock: the full script has to ask it.
    if (not last or is_token(last)) and hold[2] and hold[1] ~= holder and #hold[1] ~= 56 and #hold[2] <= 15 and
      string.find(hold[2], '^[1-9]%d*$') then
      local left = try('PTTL', lock)
      return type(left) == 'number' and left
    end
  end
  return false
end

