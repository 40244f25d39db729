-- Deletes a lock whoever holds it, wakes its waiters, the first in the queue of a fair lock too, and tells the holders.
--
-- Flags: allow-oom
-- Uses: refusal, timeout_key, publish, tell
-- Keys: lock, queue
-- Args: channel, payload, control_channel, rw_channel
-- Returns: {'OK', 0 | 1 released, (channel, payload of a message that could not be published)...}
--          | {'FOREIGN', 'lock', why}
-- Why: Only a hash of one counted holder, or of a mode and counted holders, is a lock; anything else is left as it is.
--      Readers' timeout keys go with it: their names follow from the fields. The victims are named by hashes, because
--      everybody may read the control channel. The queue stays as it is.

local lock = KEYS[1]
local fields = redis.pcall('HLEN', lock)
local foreign = refusal(fields, 'lock', 'hash')
if foreign then
  return foreign
end
if fields == 0 then
  return {'OK', 0}
end

local hold, counts, mode, writers = redis.call('HGETALL', lock), {}, false, 0
for i = 1, #hold, 2 do
  if hold[i] == 'mode' and (hold[i + 1] == 'read' or hold[i + 1] == 'write') then
    mode = hold[i + 1]
  elseif not string.match(hold[i + 1], '^%d+$') then
    return {'FOREIGN', 'lock', 'it holds a hash without a count'}
  else
    counts[#counts + 1] = {hold[i], tonumber(hold[i + 1])}
    writers = writers + (string.find(hold[i], ':write$') and 1 or 0)
  end
end
if not mode and #counts ~= 1 or mode == 'write' and writers ~= 1 then
  return {'FOREIGN', 'lock', 'it holds a hash of several fields'}
end

redis.call('DEL', lock)
local reply = {'OK', 1}
for _, victim in ipairs(counts) do
  local holder = mode and string.match(victim[1], '^(.*):write$') or victim[1]
  if mode and holder == victim[1] then
    for number = 1, math.min(victim[2], 10000) do
      redis.pcall('DEL', timeout_key(lock, holder, number))
    end
  end
  announce(reply, ARGV[3], redis.sha1hex(holder))
end
if mode then
  tell(reply, ARGV[4], '1')
  tell(reply, ARGV[4], '0')
  return reply
end
tell(reply, ARGV[1], ARGV[2])
local first = redis.pcall('LINDEX', KEYS[2], 0)
if type(first) == 'string' then
  tell(reply, ARGV[1] .. ':' .. first, ARGV[2])
end
return reply
