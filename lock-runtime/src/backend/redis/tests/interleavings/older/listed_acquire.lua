#!lua
local function in_time(lease, not_after, now)
  local ms, date = tonumber(lease), tonumber(not_after)
  return ms and ms >= 1 and ms <= 86400000 and ms % 1 == 0 and date and tonumber(now) <= date and #now == 16
end
local function is_token(token)
  return #token == 16 and string.find(token, '^%d+$') and token < '9007199254740991'
end
local function common_case(lock, fence, holder, lease, now, free, known_token)
  local try = redis.pcall
  local fields = free and 0 or try('HLEN', lock)
  if fields == 0 then
    local token, last = now, fence and try('SET', fence, now, 'GET')
    if last and last ~= known_token and not is_token(last) then
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
    if (not last or is_token(last)) and hold[2] and hold[1] ~= holder and #hold[1] ~= 56 and #hold[2] <= 15 and
      string.find(hold[2], '^[1-9]%d*$') then
      local left = try('PTTL', lock)
      return type(left) == 'number' and left
    end
  end
  return false
end
local try = redis.pcall
local time = redis.call('TIME')
local now = time[1] .. string.sub('00000' .. time[2], -6)
if ARGV[4] == '0' and in_time(ARGV[2], ARGV[3], now) then
  local lock, fence = KEYS[1], KEYS[3]
  if not ARGV[7] and try('HGET', lock, ARGV[1]) == '1' then
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
  elseif try('HLEN', lock) == 1 then
    local hold = try('HGETALL', lock)
    local left = try('PTTL', lock)
    if hold[1] ~= ARGV[1] and #hold[1] ~= 56 and #hold[2] <= 15 and string.find(hold[2], '^[1-9]%d*$') and
      type(left) == 'number' and
      type(try('ZADD', KEYS[2], 'LT', now .. (tonumber(ARGV[6]) > 25000 and '.5' or ''), ARGV[1])) == 'number' then
      try('PEXPIRE', KEYS[2], '5000')
      return {'BUSY', left, now}
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
  if #last > 16 or not string.match(last, '^%d+$') or tonumber(last) >= 9007199254740991 - (further or 0) then
    return nil, {'FOREIGN', 'fence', 'it holds `' .. string.sub(last, 1, 40) .. '`, which no fencing token can follow'}
  end
  return digits(math.max(tonumber(last) + 1, least))
end
local function admitted(wrong, not_after, fence, counted, further)
  local time = redis.call('TIME')
  local now = time[1] * 1000000 + time[2]
  if wrong or not (not_after and now <= not_after) then
    return now, nil, wrong or {'STALE', digits(now)}
  end
  return now, next_token(fence, counted and 1 or now, further)
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
local function counted(text)
  return #text <= 15 and string.match(text, '^[1-9]%d*$') and tonumber(text) or false
end
local function sole_holder(lock, fields)
  if fields ~= 1 then
    return nil, nil, {'FOREIGN', 'lock', 'it holds a hash of several fields'}
  end
  local hold = redis.call('HGETALL', lock)
  if not counted(hold[2]) then
    return nil, nil, {'FOREIGN', 'lock', 'it holds a hash without a count'}
  end
  return hold[1], hold[2]
end
local function may_keep(holder)
  return #holder == 56 and string.sub(holder, 15, 15) == '8'
end
local function listeners(channel)
  return redis.pcall('PUBSUB', 'NUMSUB', channel)[2] or -1
end
local function ask_keeper(holder, lock, now)
  if not may_keep(holder) then
    return false
  end
  local FEW = 8
  local name = string.find(lock, '{', 1, true) and lock or '{' .. lock .. '}'
  local waiting = listeners('redisson_lock__channel:' .. name)
  if waiting > FEW and now % waiting >= FEW then
    return false
  end
  local asked = redis.pcall('PUBLISH', 'lock:control:released', 'wanted:' .. string.sub(redis.sha1hex(holder), 1, 32))
  return type(asked) == 'number'
end
local function published(channel, payload)
  local receivers = redis.pcall('PUBLISH', channel, payload)
  return type(receivers) == 'number' and receivers
end
local function failed(reply)
  return type(reply) == 'table' and reply.err ~= nil
end
local function wrong_type(reply)
  return string.find(reply.err, 'WRONGTYPE', 1, true) ~= nil
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
local function reserve_tokens(fence, token, base, spare)
  local last = token
  if base >= tonumber(token) then
    last = digits(base + spare)
  end
  redis.call('SET', fence, last)
  return last
end
local lock, waiting, fence = KEYS[1], KEYS[2], KEYS[3]
local holder, lease, not_after, channel = ARGV[1], tonumber(ARGV[2]), tonumber(ARGV[3]), ARGV[5]
local counted, spare = ARGV[4] == '1', ARGV[7] and tonumber(ARGV[7])
local wrong = out_of_range(lease, 1, LONGEST_LEASE, 'lease') or ARGV[7] and out_of_range(spare, 0, 2000, 'spare')
local now, _, late = admitted(wrong, not_after)
if late then
  return late
end
local fields = redis.pcall('HLEN', lock)
local foreign = refusal(fields, 'lock', 'hash')
if foreign then
  return foreign
end
local has_it = fields > 0 and redis.call('HEXISTS', lock, holder) == 1
if fields > 0 and not has_it then
  local other, _, miscounted = sole_holder(lock, fields)
  if miscounted then
    return miscounted
  end
  local unlisted = put(waiting, holder, now, ARGV[6])
  if unlisted then
    return unlisted
  end
  return {ask_keeper(other, lock, now) and 'KEPT' or 'BUSY', redis.call('PTTL', lock), digits(now)}
end
if not has_it then
  local first, left_until, far = first_of(waiting)
  if failed(left_until) then
    return left_until
  end
  local is_left = left_until and left_until > now and left_until <= now + LEFT_AT_MOST
  if is_left or first and first ~= holder then
    local unlisted = put(waiting, holder, now, ARGV[6])
    if unlisted then
      return unlisted
    end
    local left = is_left and math.ceil((left_until - now) / 1000)
      or reserve_first(lock, waiting, channel, first, far, holder)
    if left then
      return {'BUSY', left, digits(now)}
    end
  end
end
local token, refused = next_token(fence, counted and 1 or now, spare)
if refused then
  return refused
end
local last = fence and reserve_tokens(fence, token, counted and tonumber(token) or now, spare or 0) or ''
if has_it then
  extend(lock, lease)
else
  redis.call('HSET', lock, holder, 1)
  local unleased = give_lease(lock, lease)
  if unleased then
    redis.call('DEL', lock)
    return unleased
  end
  redis.pcall('ZREM', waiting, holder)
end
return {'OK', token, digits(now), spare and last, spare and listeners(channel)}
