-- Gives back what a holder has of a read/write lock, be it a read or a write, and wakes who waits for it.
--
-- Flags: allow-oom
-- Uses: digits, time, failed, timeout_key, holder, readers, publish, told
-- Keys: lock, timeout, writer_waits
-- Args: holder, channel, time_to_come_ms
-- Returns: 1 released | 2 released, but a message could not be published | 3 released, and somebody heard it
--          | {0, time_us} not a holder
-- Why: A write may have become a read whose release overtakes the news of it, so both are taken out. What the other
--      readers have left then bounds the hash, as in Redisson; but a reader that is found to have half of it left
--      ends the search, or the release of one of many readers would look at all of them. So do more than can be looked
--      at, and a holder without a count: then the hash keeps what it has left. Readers without a timeout
--      key are dead and count for nothing. A waiting writer has time_to_come to take a lock that became free, then
--      further readers are let in: it may be dead. A leaving writer publishes 1, which wakes all Redisson clients that
--      sleep, and then 0 for one that was just about to. Publishing is last and cannot undo the release.

local lock, timeout, writer_waits = KEYS[1], KEYS[2], KEYS[3]
local holder, channel, time_to_come = ARGV[1], ARGV[2], ARGV[3]

local read = redis.pcall('HDEL', lock, holder)
if failed(read) and not wrong_type(read) then
  return read
end
local wrote = read
if not failed(read) then
  wrote = redis.call('HDEL', lock, holder .. ':write')
end
redis.pcall('DEL', timeout)
if read ~= 1 and wrote ~= 1 then
  return {0, digits(time_us())}
end

-- The longest that a reader has left, or enough of it.
local function reading_for(all)
  local longest = 0
  local enough, miscounted = any_read(lock, function(left)
    longest = math.max(longest, left)
    return left == -1 or left * 2 >= all
  end)
  return (enough or miscounted) and all or longest
end

local writes = wrote == 1
local free = redis.call('HLEN', lock) <= 1
if not free and writes then
  redis.call('HSET', lock, 'mode', 'read')
elseif not free and redis.call('HGET', lock, 'mode') == 'read' then
  local all = redis.call('PTTL', lock)
  local longest = reading_for(all)
  free = longest == 0
  if not free and longest < all then
    redis.call('PEXPIRE', lock, digits(longest))
  end
end
if free then
  redis.call('DEL', lock)
  redis.pcall('PEXPIRE', writer_waits, time_to_come, 'LT')
end

if writes and not published(channel, '1') then
  return 2
end
return (writes or free) and told(channel, '0') or 1
