-- Ends the hold that a holder has of a read/write lock, a read or a write, and wakes waiters.
--
-- Flags: allow-oom
-- Uses: digits, time, failed, timeout_key, holder, readers, publish, publish_release
-- Keys: lock, timeout
-- Args: holder, channel
-- Returns: 1 released | 2 or more: one, and the number of listeners that received the last message
--          | {1, (channel, payload)...} released, but these messages could not be published | {0, time_us} not a holder
-- Why: The release of a read may overtake the downgrade that made it of a write, so the script deletes both fields. The
--      hash then lives as long as the longest lease of the other readers, as in Redisson. The search ends early at a
--      reader with half of the hash's lease left; otherwise the release of one of many readers would look at all of
--      them. It also ends if there are more readers than one script may look at, a holder without a count, or a reader
--      of Redisson without a timeout key. In these cases, the hash keeps its expiry. Dead readers do not count. A writer
--      that leaves publishes 1, which wakes all Redisson clients that sleep, and then 0 for a client that was about to
--      sleep. Publishing comes last and cannot undo the release.

local lock, timeout = KEYS[1], KEYS[2]
local holder, channel = ARGV[1], ARGV[2]

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

-- Returns the longest rest of a reader's lease, or `all` if the search ends early.
local function reading_for(all)
  local longest = 0
  local enough, miscounted = any_read(lock, function(left, reader)
    longest = math.max(longest, left)
    return left == -1 or left * 2 >= all or left == -2 and may_live(left, reader)
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
end

if writes and not published(channel, '1') then
  return {1, channel, '1', channel, '0'}
end
return (writes or free) and publish_release(channel) or 1
