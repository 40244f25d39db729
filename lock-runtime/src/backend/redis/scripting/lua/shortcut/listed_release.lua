-- Shortcut of listed_release: every listener is a process on the list, or there is no listener.
--
-- Uses: publish, publish_release
-- Returns: as release; 1 as well if the lock was reserved

local try, lock, channel = redis.pcall, KEYS[1], ARGV[2]
if not KEYS[3] and try('HGET', lock, ARGV[1]) == '1' then
  local listeners = try('PUBSUB', 'NUMSUB', channel, channel .. ':ours')
  local all, ours = listeners[2], listeners[4]
  if all and all <= ours then
    local list = try('ZRANGE', KEYS[2], 0, 0, 'WITHSCORES')
    local first = list[1]
    if first and first ~= ARGV[1] and string.sub(list[2], 1, 1) ~= '-' and try('ZREM', KEYS[2], first) == 1 then
      redis.call('HSET', lock, first, 1)
      if try('PEXPIRE', lock, tonumber(list[2]) % 1 == 0 and '100' or '1000') ~= 1 then
        redis.call('HDEL', lock, first, ARGV[1])
        return publish_release(channel, ARGV[4])
      end
      local receivers = published(channel .. ':' .. string.sub(first, 1, 8), '0')
      if receivers ~= 0 then
        redis.call('HDEL', lock, ARGV[1])
        return receivers and 1 or 2
      end
      redis.call('HDEL', lock, first)
    elseif not first and not list.err then
      redis.call('HDEL', lock, ARGV[1])
      return publish_release(channel, ARGV[4])
    end
  end
end

