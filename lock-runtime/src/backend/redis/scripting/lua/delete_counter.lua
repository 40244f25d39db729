-- Deletes a counter and its leases.
--
-- Flags: allow-oom
-- Uses: digits, refusal, counter, publish, publish_or_append
-- Keys: counter, leases
-- Args: channel, latch
-- Returns: {'OK', 0 | 1 there was one, (channel, payload of a message that could not be published)...}
--          | {'FOREIGN', key, why}
-- Why: Only a counter is deleted. The waiters of a latch are woken by the same message as after its last count, because 1
--      would wake no waiter of Redisson's.

local MOST = 5000

local _, refused = count_at(KEYS[1])
if refused then
  return refused
end
local leased = redis.pcall('ZCARD', KEYS[2])
local foreign = refusal(leased, KEYS[2], 'sorted set')
if foreign then
  return foreign
end
if leased > MOST then
  local why = 'it holds ' .. digits(leased) .. ' leases, too many to be deleted in one step: release them by force before'
  return {'FOREIGN', KEYS[2], why}
end
local gone = redis.call('DEL', KEYS[1], KEYS[2])
if gone == 0 then
  return {'OK', 0}
end
local reply = {'OK', 1}
if ARGV[2] == '1' then
  publish_or_append(reply, ARGV[1], '0')
end
return reply
