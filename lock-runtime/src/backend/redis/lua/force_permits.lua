-- Gives every leased permit of a semaphore back, wakes waiters and tells the holders.
--
-- Flags: allow-oom
-- Uses: digits, failed, refusal, counter, publish, tell
-- Keys: permits, leases
-- Args: channel, control_channel
-- Returns: {'OK', how many, (channel, payload of a message that could not be published)...}
--          | {'FOREIGN', 'lock' or 'leases', why}
-- Why: The holders are named by their permits' ids, which say nothing to those who cannot read the leases, 256 to a
--      message. Plain permits and latches have no leases: nothing is done to them.

local permits, leases = KEYS[1], KEYS[2]

local free, refused = count_at(permits)
if refused then
  return refused
end
local ids = redis.pcall('ZRANGE', leases, 0, -1)
local foreign = refusal(ids, 'leases', 'sorted set')
if foreign then
  return foreign
end
if #ids == 0 then
  return {'OK', 0}
end

if free then
  free = redis.pcall('INCRBY', permits, #ids)
  if failed(free) then
    return free
  end
end
local gone = redis.pcall('DEL', leases)
if failed(gone) then
  if free then
    redis.call('INCRBY', permits, -#ids)
  end
  return gone
end

local reply = {'OK', #ids}
local named = {}
for i, id in ipairs(ids) do
  if #id == 16 then
    named[#named + 1] = string.gsub(id, '.', function(byte) return string.format('%02x', string.byte(byte)) end)
  end
  if #named == 256 or (i == #ids and #named > 0) then
    announce(reply, ARGV[2], 'permits:' .. table.concat(named))
    named = {}
  end
end
if free and free > 0 then
  tell(reply, ARGV[1], digits(free))
end
return reply
