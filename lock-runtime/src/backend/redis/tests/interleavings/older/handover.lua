#!lua flags=allow-oom
local function listeners(channel)
  return redis.pcall('PUBSUB', 'NUMSUB', channel)[2] or -1
end
local lock, fence = KEYS[1], KEYS[2]
local lease = tonumber(ARGV[3])
local call, try = redis.call, redis.pcall
local usual = lease and lease >= 1 and lease <= 86400000 and lease % 1 == 0 and ARGV[5] == '0'
if usual and try('HEXISTS', lock, ARGV[1]) == 1 then
  local time = call('TIME')
  local now = time[1] .. string.sub('00000' .. time[2], -6)
  local last = fence and try('GET', fence)
  if not last or (type(last) == 'string' and #last == 16 and #now == 16 and string.find(last, '^%d+$') and last < now) then
    if fence then
      call('SET', fence, now)
    end
    if try('PEXPIRE', lock, ARGV[3]) == 1 then
      call('HSET', lock, ARGV[2], 1)
      call('HDEL', lock, ARGV[1])
      return {'OK', fence and now or '', now, listeners(ARGV[4])}
    end
  end
end
local function digits(number)
  return string.format('%.0f', number)
end
local LONGEST_LEASE = 86400000
local function out_of_range(number, least, most, what)
  if not (number and number >= least and number <= most and number % 1 == 0) then
    return redis.error_reply('ERR lock ' .. what .. ' out of range')
  end
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
local function refusal(reply, which, kind)
  if type(reply) == 'table' and reply.err then
    return string.find(reply.err, 'WRONGTYPE', 1, true) and {'FOREIGN', which, 'it holds no ' .. kind} or reply
  end
end
local function next_token(fence, least, further)
  if not fence then
    return ''
  end
  local last = redis.pcall('GET', fence)
  local foreign = refusal(last, 'fence', 'string')
  if foreign then
    return nil, foreign
  end
  if not last then
    return digits(least)
  end
  -- 2^53 - 1 has no successor that a double can tell from it.
  if #last > 16 or not string.match(last, '^%d+$') or tonumber(last) >= 9007199254740991 - (further or 0) then
    return nil, {'FOREIGN', 'fence', 'it holds `' .. string.sub(last, 1, 40) .. '`, which no fencing token can follow'}
  end
  return digits(math.max(tonumber(last) + 1, least))
end
local function extend(key, lease)
  if redis.call('PEXPIRE', key, digits(lease), 'GT') == 0 and redis.call('PTTL', key) == -1 then
    redis.call('PEXPIRE', key, digits(lease))
  end
end
local function give_lease(key, lease)
  local expires = redis.pcall('PEXPIRE', key, digits(lease))
  if expires ~= 1 then
    return type(expires) == 'table' and expires or redis.error_reply('ERR lock could not be given a lease')
  end
end
local lock, fence = KEYS[1], KEYS[2]
local from, to, lease, channel = ARGV[1], ARGV[2], tonumber(ARGV[3]), ARGV[4]
local wrong = out_of_range(lease, 1, LONGEST_LEASE, 'lease')
if wrong then
  return wrong
end
local replay = redis.pcall('HEXISTS', lock, to)
if failed(replay) then
  return wrong_type(replay) and {'LOST'} or replay
end
if replay == 0 and redis.call('HEXISTS', lock, from) == 0 then
  return {'LOST'}
end
local now = time_us()
local token, refused = next_token(fence, ARGV[5] == '1' and 1 or now)
if refused then
  return refused
end
if fence then
  redis.call('SET', fence, token)
end
if replay == 1 then
  extend(lock, lease)
else
  redis.call('PEXPIRE', lock, digits(lease))
  redis.call('HSET', lock, to, 1)
end
redis.call('HDEL', lock, from)
return {'OK', token, digits(now), listeners(channel)}
