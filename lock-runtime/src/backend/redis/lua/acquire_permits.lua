#!lua
-- Leases permits of a semaphore to one holder, all or none.
--
-- Keys: permits, leases
-- Args: ids, lease_ms, not_after_us, channel
-- Returns: {'OK', time_us} | {'BUSY', ms until the first lease ends or -1, time_us} | {'STALE', time_us}
--          | {'SHORT', permits in all or ''} | {'FOREIGN', 'lock' or 'leases', why}
-- Why: An id of 16 bytes per permit follows from the holder, so a second copy finds its own and takes nothing more; a
--      copy that arrives after not_after is refused. Permits whose lease is over are taken back first, and others
--      are told if some are left. What ACLs or types can refuse is asked in pcall and undone, so that no permit is
--      lost or made. SHORT: waiting would not help.

local permits, leases = KEYS[1], KEYS[2]
local ids, lease, not_after = ARGV[1], tonumber(ARGV[2]), tonumber(ARGV[3])
local wanted = #ids / 16

local function digits(number)
  return string.format('%.0f', number)
end

if not (lease and lease >= 1 and lease <= 86400000 and lease % 1 == 0) then
  return redis.error_reply('ERR lock lease out of range')
end
if not (wanted >= 1 and wanted <= 1000 and wanted % 1 == 0) then
  return redis.error_reply('ERR lock permits out of range')
end

local time = redis.call('TIME')
local now = time[1] * 1000000 + time[2]
if not (not_after and now <= not_after) then
  return {'STALE', digits(now)}
end
local now_ms = math.floor(now / 1000)

local free = redis.pcall('GET', permits)
if type(free) == 'table' then
  if string.find(free.err, 'WRONGTYPE', 1, true) then
    return {'FOREIGN', 'lock', 'it holds no number'}
  end
  return free
end
if not free then
  return {'SHORT', ''}
end
if #free > 15 or not string.match(free, '^-?%d+$') then
  return {'FOREIGN', 'lock', 'it holds no number'}
end
free = tonumber(free)
local ended = redis.pcall('ZCOUNT', leases, '-inf', digits(now_ms))
if type(ended) == 'table' then
  if string.find(ended.err, 'WRONGTYPE', 1, true) then
    return {'FOREIGN', 'leases', 'it holds no sorted set'}
  end
  return ended
end

if ended > 0 then
  local back = redis.pcall('INCRBY', permits, ended)
  if type(back) == 'table' then
    return back
  end
  local gone = redis.pcall('ZREMRANGEBYSCORE', leases, '-inf', digits(now_ms))
  if gone ~= ended then
    redis.call('INCRBY', permits, -ended)
    return type(gone) == 'table' and gone or redis.error_reply('ERR lock permits could not be taken back')
  end
  free = free + ended
end

local mine = 0
for i = 1, wanted do
  if redis.call('ZSCORE', leases, string.sub(ids, 16 * i - 15, 16 * i)) then
    mine = mine + 1
  end
end
local need = wanted - mine
local reply
if need > free then
  local all = free + redis.call('ZCARD', leases)
  if wanted > all then
    reply = {'SHORT', digits(all)}
  else
    local first = redis.call('ZRANGE', leases, 0, 0, 'WITHSCORES')[2]
    local left = first and tonumber(first) - now_ms or -1
    -- Redisson writes "never" as a date far off.
    if not (left <= 31536000000) then
      left = -1
    end
    reply = {'BUSY', left, digits(now)}
  end
else
  if need > 0 then
    local taken = redis.pcall('INCRBY', permits, -need)
    if type(taken) == 'table' then
      return taken
    end
    free = free - need
  end
  for i = 1, wanted do
    local added = redis.pcall('ZADD', leases, 'GT', digits(now_ms + lease), string.sub(ids, 16 * i - 15, 16 * i))
    if type(added) == 'table' then
      redis.call('INCRBY', permits, need)
      return added
    end
  end
  reply = {'OK', digits(now)}
end
if ended > 0 and free > 0 then
  redis.pcall('PUBLISH', ARGV[4], digits(free))
end
return reply
