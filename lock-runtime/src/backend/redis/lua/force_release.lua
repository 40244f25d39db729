#!lua flags=allow-oom
-- Deletes a lock whoever holds it, wakes a waiter, the first in the queue of a fair lock too, and tells the holder.
--
-- Keys: lock, queue
-- Args: channel, payload, control_channel
-- Returns: {'OK', 0 | 1 released, (channel, payload of a message that could not be published)...}
--          | {'FOREIGN', 'lock', why}
-- Why: Only a hash of exactly one counted holder is a lock of this kind; anything else is left as it is. The
--      victim is named by a hash, because everybody may read the control channel. The queue stays as it is.

local lock = KEYS[1]
local fields = redis.pcall('HLEN', lock)
if type(fields) == 'table' then
  if string.find(fields.err, 'WRONGTYPE', 1, true) then
    return {'FOREIGN', 'lock', 'it holds no hash'}
  end
  return fields
end
if fields == 0 then
  return {'OK', 0}
end
if fields ~= 1 then
  return {'FOREIGN', 'lock', 'it holds a hash of several fields'}
end
local victim = redis.call('HGETALL', lock)
if not string.match(victim[2], '^%d+$') then
  return {'FOREIGN', 'lock', 'it holds a hash without a count'}
end

redis.call('DEL', lock)
local reply = {'OK', 1}
local function publish(channel, payload)
  if type(redis.pcall('PUBLISH', channel, payload)) == 'table' then
    reply[#reply + 1] = channel
    reply[#reply + 1] = payload
  end
end
publish(ARGV[3], redis.sha1hex(victim[1]))
publish(ARGV[1], ARGV[2])
local first = redis.pcall('LINDEX', KEYS[2], 0)
if type(first) == 'string' then
  publish(ARGV[1] .. ':' .. first, ARGV[2])
end
return reply
