#!lua flags=allow-oom
-- Makes another holder of the same process the holder, in one step and without waking anybody.
--
-- Keys: lock, fence?
-- Args: from, to, lease_ms, channel, counted?
-- Returns: {'OK', token or '', time_us, subscribers or -1 unknown} | {'LOST'} | {'FOREIGN', 'fence', why}
-- Why: `to` is written only where `from` was, so a second copy finds `to` and a late one finds neither; it never
--      acquires. The lease is set before the holders change, and `to` comes before `from` goes, so that there is a
--      holder and an expiry at every step. The channel's subscribers are counted: others may be waiting.

local lock, fence = KEYS[1], KEYS[2]
local from, to, lease, channel = ARGV[1], ARGV[2], tonumber(ARGV[3]), ARGV[4]

local function digits(number)
  return string.format('%.0f', number)
end

if not (lease and lease >= 1 and lease <= 86400000 and lease % 1 == 0) then
  return redis.error_reply('ERR lock lease out of range')
end

local replay = redis.pcall('HEXISTS', lock, to)
if type(replay) == 'table' then
  if string.find(replay.err, 'WRONGTYPE', 1, true) then
    return {'LOST'}
  end
  return replay
end
if replay == 0 and redis.call('HEXISTS', lock, from) == 0 then
  return {'LOST'}
end

local time = redis.call('TIME')
local now = time[1] * 1000000 + time[2]
local token = ''
if fence then
  local last = redis.pcall('GET', fence)
  if type(last) == 'table' then
    if string.find(last.err, 'WRONGTYPE', 1, true) then
      return {'FOREIGN', 'fence', 'it holds no string'}
    end
    return last
  end
  local next = ARGV[5] and 1 or now
  if last then
    if #last > 16 or not string.match(last, '^%d+$') or tonumber(last) >= 9007199254740991 then
      return {'FOREIGN', 'fence', 'it holds no fencing token'}
    end
    next = math.max(tonumber(last) + 1, next)
  end
  token = digits(next)
  redis.call('SET', fence, token)
end

if replay == 1 then
  if redis.call('PEXPIRE', lock, digits(lease), 'GT') == 0 and redis.call('PTTL', lock) == -1 then
    redis.call('PEXPIRE', lock, digits(lease))
  end
else
  redis.call('PEXPIRE', lock, digits(lease))
  redis.call('HSET', lock, to, 1)
end
redis.call('HDEL', lock, from)

local counted = redis.pcall('PUBSUB', 'NUMSUB', channel)
return {'OK', token, digits(now), counted[2] or -1}
