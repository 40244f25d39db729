#!lua
-- Takes several locks, each for a holder of its own, if all of them are free.
--
-- Keys: (lock, fence?)...
-- Args: not_after_us, (holder, lease_ms, how the fence counts?)...
-- Returns: {'OK', time_us, token or '', ...} | {'BUSY', time_us} | {'STALE', time_us}
--          | {'FOREIGN', index, 'lock' or 'fence', why}
-- Why: As acquire, for each of them: dated, and a second copy takes nothing twice. Everything is looked at before
--      the first write, so that none is taken where one cannot be. Locks of one slot share a fence, so each token is
--      made when its lock is taken.

local not_after = tonumber(ARGV[1])

local function digits(number)
  return string.format('%.0f', number)
end

local function wrong_type(reply)
  return string.find(reply.err, 'WRONGTYPE', 1, true)
end

local time = redis.call('TIME')
local now = time[1] * 1000000 + time[2]
if not (not_after and now <= not_after) then
  return {'STALE', digits(now)}
end

local items = {}
local key = 1
for i = 1, (#ARGV - 1) / 3 do
  local item = {
    lock = KEYS[key],
    holder = ARGV[3 * i - 1],
    lease = tonumber(ARGV[3 * i]),
    counts = ARGV[3 * i + 1],
  }
  key = key + 1
  if item.counts ~= '' then
    item.fence = KEYS[key]
    key = key + 1
  end
  items[i] = item
end

local busy = false
for i, item in ipairs(items) do
  if not (item.lease and item.lease >= 1 and item.lease <= 86400000 and item.lease % 1 == 0) then
    return redis.error_reply('ERR lock lease out of range')
  end
  if item.fence then
    local last = redis.pcall('GET', item.fence)
    if type(last) == 'table' then
      return wrong_type(last) and {'FOREIGN', i, 'fence', 'it holds no string'} or last
    end
    -- Every lock of the set may raise the same fence once.
    if last and (#last > 16 or not string.match(last, '^%d+$') or tonumber(last) >= 9007199254740991 - #items) then
      return {'FOREIGN', i, 'fence', 'it holds no fencing token'}
    end
  end
  local fields = redis.pcall('HLEN', item.lock)
  if type(fields) == 'table' then
    return wrong_type(fields) and {'FOREIGN', i, 'lock', 'it holds no hash'} or fields
  end
  item.own = fields > 0 and redis.call('HEXISTS', item.lock, item.holder) == 1
  if fields > 0 and not item.own then
    if fields ~= 1 then
      return {'FOREIGN', i, 'lock', 'it holds a hash of several fields'}
    end
    busy = true
  end
end
if busy then
  return {'BUSY', digits(now)}
end

local reply = {'OK', digits(now)}
for i, item in ipairs(items) do
  local token = ''
  if item.fence then
    local last = redis.call('GET', item.fence)
    local next = item.counts == 'by one' and 1 or now
    if last then
      next = math.max(tonumber(last) + 1, next)
    end
    token = digits(next)
    redis.call('SET', item.fence, token)
  end
  -- A second copy never shortens a lease.
  if not (item.own and redis.call('PTTL', item.lock) >= item.lease) then
    redis.call('HSET', item.lock, item.holder, 1)
    local expires = redis.pcall('PEXPIRE', item.lock, digits(item.lease))
    if type(expires) == 'table' then
      -- A hash without a lease would stay for ever.
      for j = 1, i do
        redis.call('DEL', items[j].lock)
      end
      return expires
    end
  end
  reply[i + 2] = token
end
return reply
