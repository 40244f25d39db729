-- Deletes a counter and its leases.
--
-- Flags: allow-oom
-- Uses: refusal, counter, publish
-- Keys: counter, leases
-- Args: channel, payload
-- Returns: {'OK', 0 | 1 there was one, 0 | 1 published or nothing to tell} | {'FOREIGN', 'lock' or 'leases', why}
-- Why: Only what is a counter is deleted. Those who wait for a latch are told; no payload, no message.

local _, refused = count_at(KEYS[1])
if refused then
  return refused
end
local leased = redis.pcall('ZCARD', KEYS[2])
local foreign = refusal(leased, 'leases', 'sorted set')
if foreign then
  return foreign
end
local gone = redis.call('DEL', KEYS[1], KEYS[2])
if gone == 0 then
  return {'OK', 0, 1}
end
if ARGV[2] == '' then
  return {'OK', 1, 1}
end
return {'OK', 1, published(ARGV[1], ARGV[2]) and 1 or 0}
