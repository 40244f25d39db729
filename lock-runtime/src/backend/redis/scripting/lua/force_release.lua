-- Deletes the lock of any holder. Wakes its waiters, and the first waiter in the queue of a fair lock, and reports
-- the release to the holders.
--
-- Flags: allow-oom
-- Uses: digits, refusal, holder, mode, timeout_key, readers, publish, publish_or_append
-- Keys: lock, queue
-- Args: channel, rw_channel
-- Returns: {'OK', 0 | 1 released, number of holders that no message names, (channel, payload of a message that could
--          not be published)...}
--          | {'FOREIGN', key, why}
-- Why: A lock is a hash of one counted holder, or of a mode and counted holders; the script leaves anything else alone.
--      The timeout keys of readers are deleted as well: their names follow from the fields. The message names the
--      holders by hashes, because every client may read the control channel. If there are more holders than one script
--      may look at, the rest get no message, and their timeout keys expire by themselves. DEL takes time for every
--      field. The queue stays.

local MOST = 10000

local lock = KEYS[1]
local fields = redis.pcall('HLEN', lock)
local foreign = refusal(fields, lock, 'hash')
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
    return {'FOREIGN', lock, why}
  end
  holders = fields - 1
  local _, miscounted = each_holder(lock, function(field, count)
    if not afford(1) then
      return OUT_OF_STEPS
    end
    local writer = string.match(field, '^(.*):write$')
    victim(writer or field)
    for number = 1, writer and 0 or count do
      if not afford(1) then
        return OUT_OF_STEPS
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
name_holders(reply, aliases)
if mode then
  publish_or_append(reply, ARGV[2], '1')
  publish_or_append(reply, ARGV[2], '0')
  return reply
end
publish_or_append(reply, ARGV[1], '0')
local first = redis.pcall('LINDEX', KEYS[2], 0)
if type(first) == 'string' then
  publish_or_append(reply, ARGV[1] .. ':' .. first, '0')
end
return reply
