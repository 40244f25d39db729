-- Shortcut of listed_release: fewer listen than a crowd, or only processes that are on the list.
--
-- Uses:
-- Returns: 1 released | 2 released, but the message could not be published
-- Why: As for release. This script is never asked where channels are sharded.

local try, lock, channel, crowd = redis.pcall, KEYS[1], ARGV[2], tonumber(ARGV[4])
if crowd and not KEYS[3] and try('HGET', lock, ARGV[1]) == '1' then
  local listeners = try('PUBSUB', 'NUMSUB', channel, channel .. ':ours')
  local all, ours = listeners[2], listeners[4]
  if all and all < crowd then
    redis.call('HDEL', lock, ARGV[1])
    return type(try('PUBLISH', channel, ARGV[5])) == 'number' and 1 or 2
  elseif all and all <= ours then
    local list = try('ZRANGE', KEYS[2], 0, 0, 'WITHSCORES')
    local first = list[1]
    if first and first ~= ARGV[1] and string.sub(list[2], 1, 1) ~= '-' and try('ZREM', KEYS[2], first) == 1 then
      redis.call('HSET', lock, first, 1)
      if try('PEXPIRE', lock, tonumber(list[2]) % 1 == 0 and '100' or '1000') ~= 1 then
        redis.call('HDEL', lock, first, ARGV[1])
        return type(try('PUBLISH', channel, ARGV[6])) == 'number' and 1 or 2
      end
      redis.call('HDEL', lock, ARGV[1])
      return type(try('PUBLISH', channel .. ':' .. string.sub(first, 1, 8), '0')) == 'number' and 1 or 2
    end
  end
end

