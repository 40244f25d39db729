#!lua flags=allow-oom
-- Gives back what a holder has of a read/write lock, be it a read or a write, and wakes who waits for it.
--
-- Keys: lock, timeout, writer_waits
-- Args: holder, channel, time_to_come_ms
-- Returns: {1, ''} released | {2, ''} released, but a message could not be published | {0, time_us} not a holder
-- Why: A write may have become a read whose release overtakes the news of it, so both are taken out. What the other
--      readers have left then bounds the hash, as in Redisson; but a reader that is found to have half of it left
--      ends the search, or the release of one of many readers would look at all of them. Readers without a timeout
--      key are dead and count for nothing. A waiting writer has time_to_come to take a lock that became free, then
--      further readers are let in: it may be dead. A leaving writer publishes 1, which wakes all Redisson clients that
--      sleep, and then 0 for one that was just about to. Publishing is last and cannot undo the release.

local lock, timeout, writer_waits = KEYS[1], KEYS[2], KEYS[3]
local holder, channel, time_to_come = ARGV[1], ARGV[2], ARGV[3]

local read = redis.pcall('HDEL', lock, holder)
if type(read) == 'table' and not string.find(read.err, 'WRONGTYPE', 1, true) then
  return read
end
local wrote = read
if type(read) ~= 'table' then
  wrote = redis.call('HDEL', lock, holder .. ':write')
end
redis.pcall('DEL', timeout)
if read ~= 1 and wrote ~= 1 then
  local time = redis.call('TIME')
  return {0, string.format('%.0f', time[1] * 1000000 + time[2])}
end

-- The longest that a reader has left, or enough of it.
local function reading_for(whole)
  local base = string.find(lock, '{', 1, true) and lock or '{' .. lock .. '}'
  local longest, cursor = 0, '0'
  repeat
    local page = redis.call('HSCAN', lock, cursor, 'COUNT', 100)
    cursor = page[1]
    for i = 1, #page[2], 2 do
      local count = page[2][i] ~= 'mode' and (tonumber(page[2][i + 1]) or math.huge) or 0
      if count > 10000 then
        return whole
      end
      for hold = 1, count do
        local left = redis.call('PTTL', base .. ':' .. page[2][i] .. ':rwlock_timeout:' .. hold)
        if left == -1 or left * 2 >= whole then
          return whole
        end
        longest = math.max(longest, left)
      end
    end
  until cursor == '0'
  return longest
end

local writes = wrote == 1
local free = redis.call('HLEN', lock) <= 1
if not free and writes then
  redis.call('HSET', lock, 'mode', 'read')
elseif not free and redis.call('HGET', lock, 'mode') == 'read' then
  local whole = redis.call('PTTL', lock)
  local longest = reading_for(whole)
  free = longest == 0
  if not free and longest < whole then
    redis.call('PEXPIRE', lock, string.format('%.0f', longest))
  end
end
if free then
  redis.call('DEL', lock)
  redis.pcall('PEXPIRE', writer_waits, time_to_come, 'LT')
end

local told = true
local function publish(payload)
  told = type(redis.pcall('PUBLISH', channel, payload)) ~= 'table' and told
end
if writes then
  publish('1')
end
if writes or free then
  publish('0')
end
return {told and 1 or 2, ''}
