-- Gives leased permits of a semaphore back, wakes waiters and tells the holders.
--
-- Flags: allow-oom
-- Uses: digits, failed, refusal, counter, by_request, publish, tell
-- Keys: permits, leases
-- Args: channel, control_channel
-- Returns: {'OK', how many, how many are left, (channel, payload of a message that could not be published)...}
--          | {'FOREIGN', 'lock' or 'leases', why}
-- Why: 256 of them, for the server does nothing else meanwhile: the caller sends it again for the rest. The holders are
--      named by their permits' ids, which say nothing to those who cannot read the leases. Plain permits and latches
--      have no leases: nothing is done to them.

local permits, leases = KEYS[1], KEYS[2]
local HEX = string.rep('%02x', 16)

local free, refused = count_at(permits)
if refused then
  return refused
end
local ids = redis.pcall('ZRANGE', leases, 0, 255)
local foreign = refusal(ids, 'leases', 'sorted set')
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
name(reply, ARGV[2], aliases)
if free and free > 0 then
  tell(reply, ARGV[1], digits(free))
end
return reply
