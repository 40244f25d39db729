-- Fragment usually: takes a lock whose request came in time, or says how long another holder has it yet.
--
-- Offers: in_time(lease, not_after, now), whether a lock may be taken for so long, and the request came in time
--         | usually(lock, fence, holder, lease, now, free, fine), the token, or the time where no fence is named, and the
--         token before it | what PTTL says of the other holder's lease | false if anything else is the case: the lock is
--         as it was. `free`: no key was there when the script began; `fine`: a text that was found to be a token.
-- After:
-- Why: Nearly every acquire is one of these, and the careful way spends more on its fragments than on its commands. No
--      command here raises an error, for others share the script. Of a script that looked at all keys at its beginning,
--      an earlier request may have taken the lock since: then its key has a lease, and gets no other.
--      Locks that are taken together have one token, so those who take them together again find one.

local function in_time(lease, not_after, now)
  local ms, date = tonumber(lease), tonumber(not_after)
  return ms and ms >= 1 and ms <= 86400000 and ms % 1 == 0 and date and tonumber(now) <= date and #now == 16
end

-- Sixteen digits until the year 2286: they compare as text. No reply but a text has this length.
local function known(token)
  return #token == 16 and string.find(token, '^%d+$') and token < '9007199254740991'
end

local function usually(lock, fence, holder, lease, now, free, fine)
  local try = redis.pcall
  local fields = free and 0 or try('HLEN', lock)
  if fields == 0 then
    local token, last = now, fence and try('SET', fence, now, 'GET')
    if last and last ~= fine and not known(last) then
      -- What was no token is put back.
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
    -- A name of 56 may be that of one that keeps the lock, and is to be asked.
    if (not last or known(last)) and hold[2] and hold[1] ~= holder and #hold[1] ~= 56 and #hold[2] <= 15 and
      string.find(hold[2], '^[1-9]%d*$') then
      local left = try('PTTL', lock)
      return type(left) == 'number' and left
    end
  end
  return false
end

