#!lua
local lock, fence = KEYS[1], KEYS[2]
local lease, not_after = tonumber(ARGV[2]), tonumber(ARGV[3])
local call, try = redis.call, redis.pcall
local time = call('TIME')
local now = time[1] .. string.sub('00000' .. time[2], -6)
local usual = lease and lease >= 1 and lease <= 86400000 and lease % 1 == 0 and ARGV[4] == '0'
if usual and not_after and tonumber(now) <= not_after and try('HLEN', lock) == 0 then
  local last = fence and try('GET', fence)
  -- Sixteen digits until the year 2286: they compare as text.
  if not last or (type(last) == 'string' and #last == 16 and #now == 16 and string.find(last, '^%d+$') and last < now) then
    if fence then
      call('SET', fence, now)
    end
    call('HSET', lock, ARGV[1], 1)
    if try('PEXPIRE', lock, ARGV[2]) == 1 then
      return now
    end
    call('DEL', lock)
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
local function dated(not_after)
  local time = redis.call('TIME')
  local now = time[1] * 1000000 + time[2]
  if not (not_after and now <= not_after) then
    return now, {'STALE', digits(now)}
  end
  return now
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
local function counted(text)
  return #text <= 15 and string.match(text, '^[1-9]%d*$') and tonumber(text) or false
end
local function sole_holder(lock)
  local hold = redis.call('HGETALL', lock)
  if not counted(hold[2]) then
    return nil, nil, {'FOREIGN', 'lock', 'it holds a hash without a count'}
  end
  return hold[1], hold[2]
end
local lock, fence = KEYS[1], KEYS[2]
local holder, lease, not_after = ARGV[1], tonumber(ARGV[2]), tonumber(ARGV[3])
local wrong = out_of_range(lease, 1, LONGEST_LEASE, 'lease')
if wrong then
  return wrong
end
local now, stale = dated(not_after)
if stale then
  return stale
end
local token, refused = next_token(fence, ARGV[4] == '1' and 1 or now)
if refused then
  return refused
end
local fields = redis.pcall('HLEN', lock)
local foreign = refusal(fields, 'lock', 'hash')
if foreign then
  return foreign
end
if fields > 0 then
  if redis.call('HEXISTS', lock, holder) == 1 then
    if fence then
      redis.call('SET', fence, token)
    end
    extend(lock, lease)
    return {'OK', token, digits(now)}
  end
  if fields ~= 1 then
    return {'FOREIGN', 'lock', 'it holds a hash of several fields'}
  end
  local _, _, miscounted = sole_holder(lock)
  if miscounted then
    return miscounted
  end
  return {'BUSY', redis.call('PTTL', lock), digits(now)}
end
if fence then
  redis.call('SET', fence, token)
end
redis.call('HSET', lock, holder, 1)
local unleased = give_lease(lock, lease)
if unleased then
  redis.call('DEL', lock)
  return unleased
end
return {'OK', token, digits(now)}
