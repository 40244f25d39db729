-- Deletes a counter and its leases.
--
-- Flags: allow-oom
-- Uses: digits, refusal, counter, publish
-- Keys: counter, leases
-- Args: channel, payload
-- Returns: {'OK', 0 | 1 there was one, 0 | 1 published or no message needed} | {'FOREIGN', 'lock' or 'leases', why}
-- Why: Only a counter is deleted. The waiters of a latch are woken; with an empty payload, no message is published.

local MOST = 5000

local _, refused = count_at(KEYS[1])
if refused then
  return refused
end
local leased = redis.pcall('ZCARD', KEYS[2])
local foreign = refusal(leased, 'leases', 'sorted set')
if foreign then
  return foreign
end
if leased > MOST then
  local why = 'it holds ' .. digits(leased) .. ' leases, too many to be deleted in one step: release them by force before'
  return {'FOREIGN', 'leases', why}
end
local gone = redis.call('DEL', KEYS[1], KEYS[2])
if gone == 0 then
  return {'OK', 0, 1}
end
if ARGV[2] == '' then
  return {'OK', 1, 1}
end
return {'OK', 1, published(ARGV[1], ARGV[2]) and 1 or 0}
