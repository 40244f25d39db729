-- Deletes a lock, no matter who holds it, wakes its waiters, the first in the queue of a fair lock too, and tells the holders.
--
-- Flags: allow-oom
-- Uses: digits, refusal, holder, mode, timeout_key, readers, publish, tell
-- Keys: lock, queue
-- Args: channel, rw_channel, payload, control_channel
-- Returns: {'OK', 0 | 1 released, holders that were not told, (channel, payload of a message that could not be
--          published)...} | {'FOREIGN', 'lock', why}
-- Why: Only a hash of one counted holder, or of a mode and counted holders, is a lock; anything else is left as it is.
--      Readers' timeout keys go with it: their names follow from the fields. The victims are named by hashes, because
--      everybody may read the control channel. Of more holders than one script may look at, the others are not told,
--      and their timeout keys end by themselves. DEL takes its time for every field. The queue stays as it is.

local MOST = 10000

local lock = KEYS[1]
local fields = redis.pcall('HLEN', lock)
local foreign = refusal(fields, 'lock', 'hash')
if foreign then
  return foreign
end
if fields == 0 then
  return {'OK', 0, 0}
end

local aliases, timeouts, holders, mode = {}, {}, 1, false
local function victim(holder)
  aliases[#aliases + 1] = string.sub(redis.sha1hex(holder), 1, 32)
end

if fields == 1 then
  local holder, _, miscounted = sole_holder(lock, fields)
  if miscounted then
    return miscounted
  end
  victim(holder)
else
  mode, foreign = mode_of(lock)
  if foreign then
    return foreign
  end
  if fields > MOST then
    local why = 'it holds a hash of ' .. digits(fields) .. ' fields, too many to be deleted in one step: UNLINK it'
    return {'FOREIGN', 'lock', why}
  end
  holders = fields - 1
  local _, miscounted = each_holder(lock, function(field, count)
    if not afford(1) then
      return TIRED
    end
    local writer = string.match(field, '^(.*):write$')
    victim(writer or field)
    for number = 1, writer and 0 or count do
      if not afford(1) then
        return TIRED
      end
      timeouts[#timeouts + 1] = timeout_key(lock, field, number)
    end
  end)
  if miscounted then
    return miscounted
  end
end

redis.call('DEL', lock)
if #timeouts > 0 then
  redis.pcall('DEL', unpack(timeouts))
end
local reply = {'OK', 1, holders - #aliases}
name(reply, ARGV[4], aliases)
if mode then
  tell(reply, ARGV[2], '1')
  tell(reply, ARGV[2], '0')
  return reply
end
tell(reply, ARGV[1], ARGV[3])
local first = redis.pcall('LINDEX', KEYS[2], 0)
if type(first) == 'string' then
  tell(reply, ARGV[1] .. ':' .. first, ARGV[3])
end
return reply
