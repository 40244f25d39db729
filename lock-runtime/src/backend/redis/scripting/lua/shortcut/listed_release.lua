-- Shortcut of listed_release: every listener is a process on the list, or there is no listener.
--
-- Uses: publish, publish_release
-- Returns: as the full script
-- Why: Unused tokens go back as in the full script. The token that is drawn then takes their place.

local try, lock, channel = redis.pcall, KEYS[1], ARGV[2]
if ARGV[4] ~= '' and try('HGET', lock, ARGV[1]) == '1' then
  local list = try('ZRANGE', KEYS[2], 0, 0, 'WITHSCORES')
  local first = list[1]
  local own = channel .. ':' .. string.sub(first or '', 1, 8)
  local listeners = try('PUBSUB', 'NUMSUB', channel, channel .. ':ours', own)
  local all, ours, hears = listeners[2], listeners[4], listeners[6]
  if all and all <= ours then
    if first and first ~= ARGV[1] and string.sub(list[2], 1, 1) ~= '-' and hears > 0 then
      local time = redis.call('TIME')
      local now = time[1] .. string.sub('00000' .. time[2], -6)
      local last = try('GET', KEYS[3])
      if last and last == ARGV[7] then
        last = ARGV[8]
      end
      if (not last or type(last) == 'string' and #last == 16 and string.find(last, '^%d+$') and last < '9007199254740991') and
        #now == 16 and try('ZREM', KEYS[2], first) == 1 then
        local token = last and last >= now and string.format('%.0f', tonumber(last) + 1) or now
        local ends = string.format('%.0f', tonumber(string.sub(now, 1, 13)) + 1000)
        redis.call('SET', KEYS[3], token)
        redis.call('HSET', lock, first, 1)
        if try('PEXPIREAT', lock, ends) ~= 1 then
          redis.call('HDEL', lock, first, ARGV[1])
          return publish_release(channel)
        end
        local receivers = published(own,
          string.sub(redis.sha1hex(first), 1, 32) .. ':' .. ARGV[4] .. ':' .. ends .. ':' .. token)
        redis.call('HDEL', lock, ARGV[1])
        if receivers and ARGV[5] ~= '' and tonumber(now) <= tonumber(ARGV[6]) and
          type(try('ZADD', KEYS[2], 'LT', now, ARGV[5])) == 'number' then
          try('PEXPIRE', KEYS[2], '5000')
          return {-1, now}
        end
        return receivers and 1 or {1, channel, '0'}
      end
    elseif not first and not list.err and not ARGV[7] then
      redis.call('HDEL', lock, ARGV[1])
      return publish_release(channel)
    end
  end
end
