-- Returns leased permits of a semaphore, wakes waiters, and reports the release to the holders.
--
-- Flags: allow-oom
-- Uses: digits, failed, refusal, counter, by_request, publish, publish_or_append
-- Keys: permits, leases
-- Args: channel
-- Returns: {'OK', permits returned, permits still leased, (channel, payload of a message that could not be
--          published)...}
--          | {'FOREIGN', key, why}
-- Why: One script returns 256 permits at most, because the server does nothing else meanwhile; the caller sends it
--      again for the rest. The message names the holders by the ids of their permits, which mean nothing to a client
--      that cannot read the leases. Plain permits and latches have no leases, so the script leaves them alone.

local permits, leases = KEYS[1], KEYS[2]
local HEX = string.rep('%02x', 16)

local free, refused = count_at(permits)
if refused then
  return refused
end
local ids = redis.pcall('ZRANGE', leases, 0, 255)
local foreign = refusal(ids, leases, 'sorted set')
if foreign then
  return foreign
end
if #ids == 0 then
  return {'OK', 0, 0}
end

if free then
  free = redis.pcall('INCRBY', permits, #ids)
  if failed(free) then
    return free
  end
end
local gone = redis.pcall('ZREM', leases, unpack(ids))
if failed(gone) then
  if free then
    redis.call('INCRBY', permits, -#ids)
  end
  return gone
end

local reply = {'OK', #ids, redis.call('ZCARD', leases)}
if free then
  delete_full(permits, leases, free)
end
local aliases = {}
for _, id in ipairs(ids) do
  if #id == 16 then
    aliases[#aliases + 1] = string.format(HEX, string.byte(id, 1, 16))
  end
end
name_holders(reply, aliases)
if free and free > 0 then
  publish_or_append(reply, ARGV[1], digits(free))
end
return reply
