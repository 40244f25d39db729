#!lua flags=allow-oom
-- Gives leased permits back and wakes waiters.
--
-- Keys: permits, leases
-- Args: ids, channel
-- Returns: {1, ''} given back | {2, free} given back, but the message could not be published | {0, time_us} not all of
--          them were leased any more; those that were are given back
-- Why: Only what is still leased is counted, so a second copy gives nothing back. The count goes up before the leases
--      go, and down again if they are refused. A semaphore that is gone does not come back by a release.

local permits, leases, ids = KEYS[1], KEYS[2], ARGV[1]

local function digits(number)
  return string.format('%.0f', number)
end

if #ids < 16 or #ids > 16000 or #ids % 16 ~= 0 then
  return redis.error_reply('ERR lock permits out of range')
end
local own = {}
for i = 1, #ids / 16 do
  local id = string.sub(ids, 16 * i - 15, 16 * i)
  local score = redis.pcall('ZSCORE', leases, id)
  if type(score) == 'table' and not string.find(score.err, 'WRONGTYPE', 1, true) then
    return score
  end
  if type(score) == 'string' then
    own[#own + 1] = id
  end
end

local free = nil
if #own > 0 then
  local held = redis.pcall('GET', permits)
  if type(held) == 'table' and not string.find(held.err, 'WRONGTYPE', 1, true) then
    return held
  end
  if type(held) == 'string' and #held <= 15 and string.match(held, '^-?%d+$') then
    free = redis.pcall('INCRBY', permits, #own)
    if type(free) == 'table' then
      return free
    end
  end
  local gone = redis.pcall('ZREM', leases, unpack(own))
  if type(gone) == 'table' then
    if free then
      redis.call('INCRBY', permits, -#own)
    end
    return gone
  end
end

local unpublished = free and free > 0 and type(redis.pcall('PUBLISH', ARGV[2], digits(free))) == 'table'
if #own * 16 < #ids then
  local time = redis.call('TIME')
  return {0, digits(time[1] * 1000000 + time[2])}
end
return unpublished and {2, digits(free)} or {1, ''}
