#!lua flags=allow-oom
local function published(channel, payload)
  local receivers = redis.pcall('PUBLISH', channel, payload)
  return type(receivers) == 'number' and receivers
end
local function publish_release(channel, payload)
  local receivers = published(channel, payload)
  return receivers and (receivers > 0 and 3 or 1) or 2
end
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
local function digits(number)
  return string.format('%.0f', number)
end
local function time_us()
  local time = redis.call('TIME')
  return time[1] * 1000000 + time[2]
end
local function failed(reply)
  return type(reply) == 'table' and reply.err ~= nil
end
local function wrong_type(reply)
  return string.find(reply.err, 'WRONGTYPE', 1, true) ~= nil
end
local function listeners(channel)
  return redis.pcall('PUBSUB', 'NUMSUB', channel)[2] or -1
end
local LIFE, LEFT, LEFT_AT_MOST, SHORTEST, LONGEST = '5000', 'left to others', 250000, 100, 1000
local function put(waiting, holder, now, trip)
  local far = (tonumber(trip) or 0) * 4 > SHORTEST * 1000
  local added = redis.pcall('ZADD', waiting, 'LT', digits(now) .. (far and '.5' or ''), holder)
  redis.pcall('PEXPIRE', waiting, LIFE)
  return failed(added) and not wrong_type(added) and added or nil
end
local function first_of(waiting)
  local list = redis.pcall('ZRANGE', waiting, 0, 1, 'WITHSCORES')
  if failed(list) then
    return nil, not wrong_type(list) and list or nil
  end
  local left_until, first = false, 1
  if list[2] and tonumber(list[2]) < 0 then
    left_until, first = -tonumber(list[2]), 3
  end
  return list[first] or false, left_until, list[first] and tonumber(list[first + 1]) % 1 ~= 0
end
local function reserve_first(lock, waiting, channel, first, far, but)
  for _ = 1, 8 do
    if not first or first == but or redis.pcall('ZREM', waiting, first) ~= 1 then
      return false
    end
    local ms = far and LONGEST or SHORTEST
    redis.call('HSET', lock, first, 1)
    if redis.pcall('PEXPIRE', lock, digits(ms)) ~= 1 then
      redis.call('HDEL', lock, first)
      return false
    end
    local receivers = published(channel .. ':' .. string.sub(first, 1, 8), '0')
    if receivers ~= 0 then
      return ms, receivers
    end
    redis.call('HDEL', lock, first)
    local next_one, _, next_is_far = first_of(waiting)
    first, far = next_one, next_is_far
  end
  return false
end
local function return_tokens(fence, last, used)
  if fence and redis.pcall('GET', fence) == last then
    redis.pcall('SET', fence, used)
  end
end
local lock, waiting = KEYS[1], KEYS[2]
local holder, channel, trip, released = ARGV[1], ARGV[2], ARGV[3], ARGV[4]
local held = redis.pcall('HEXISTS', lock, holder)
if failed(held) and not wrong_type(held) then
  return held
end
local left_list = redis.pcall('ZREM', waiting, holder)
if failed(left_list) and not wrong_type(left_list) then
  return left_list
end
local now = time_us()
if held ~= 1 then
  return {0, digits(now)}
end
local function end_hold()
  redis.call('HDEL', lock, holder)
  return_tokens(KEYS[3], ARGV[5], ARGV[6])
end
local first, left_until, far = first_of(waiting)
if failed(left_until) then
  return left_until
end
if left_until then
  redis.pcall('ZREM', waiting, LEFT)
end
local others = math.max(0, listeners(channel) - math.max(0, listeners(channel .. ':ours')))
local leave = others > 0
if first and leave then
  local listed = redis.pcall('ZCARD', waiting)
  if type(listed) == 'number' then
    local turns = math.min(others, listed)
    leave = now % (listed + turns) < turns
  end
end
if first and not leave then
  local reserved, receivers = reserve_first(lock, waiting, channel, first, far)
  if reserved then
    end_hold()
    return receivers and 1 or 2
  end
end
end_hold()
if leave then
  local us = math.max(1000, math.min(LEFT_AT_MOST, 4 * (tonumber(trip) or 0)))
  redis.pcall('ZADD', waiting, digits(-(now + us)), LEFT)
  redis.pcall('PEXPIRE', waiting, LIFE)
end
return publish_release(channel, released)
