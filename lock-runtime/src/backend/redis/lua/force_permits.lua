#!lua flags=allow-oom
-- Gives every leased permit of a semaphore back, wakes waiters and tells the holders.
--
-- Keys: permits, leases
-- Args: channel, control_channel
-- Returns: {'OK', how many, (channel, payload of a message that could not be published)...}
--          | {'FOREIGN', 'lock' or 'leases', why}
-- Why: The holders are named by their permits' ids, which say nothing to those who cannot read the leases, 256 to a
--      message. Plain permits and latches have no leases: nothing is done to them.

local permits, leases = KEYS[1], KEYS[2]

local function digits(number)
  return string.format('%.0f', number)
end

local free = redis.pcall('GET', permits)
if type(free) == 'table' then
  if string.find(free.err, 'WRONGTYPE', 1, true) then
    return {'FOREIGN', 'lock', 'it holds no number'}
  end
  return free
end
if free and (#free > 15 or not string.match(free, '^-?%d+$')) then
  return {'FOREIGN', 'lock', 'it holds no number'}
end
local ids = redis.pcall('ZRANGE', leases, 0, -1)
if ids.err then
  if string.find(ids.err, 'WRONGTYPE', 1, true) then
    return {'FOREIGN', 'leases', 'it holds no sorted set'}
  end
  return ids
end
if #ids == 0 then
  return {'OK', 0}
end

if free then
  free = redis.pcall('INCRBY', permits, #ids)
  if type(free) == 'table' then
    return free
  end
end
local gone = redis.pcall('DEL', leases)
if type(gone) == 'table' then
  if free then
    redis.call('INCRBY', permits, -#ids)
  end
  return gone
end

local reply = {'OK', #ids}
local function publish(channel, payload)
  if type(redis.pcall('PUBLISH', channel, payload)) == 'table' then
    reply[#reply + 1] = channel
    reply[#reply + 1] = payload
  end
end
local named = {}
for i, id in ipairs(ids) do
  if #id == 16 then
    named[#named + 1] = string.gsub(id, '.', function(byte) return string.format('%02x', string.byte(byte)) end)
  end
  if #named == 256 or (i == #ids and #named > 0) then
    publish(ARGV[2], 'permits:' .. table.concat(named))
    named = {}
  end
end
if free and free > 0 then
  publish(ARGV[1], digits(free))
end
return reply
