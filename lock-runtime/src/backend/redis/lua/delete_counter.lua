#!lua flags=allow-oom
-- Deletes a counter and its leases.
--
-- Keys: counter, leases
-- Args: channel, payload
-- Returns: {'OK', 0 | 1 there was one, 0 | 1 published or nothing to tell} | {'FOREIGN', 'lock' or 'leases', why}
-- Why: Only what is a counter is deleted. Those who wait for a latch are told; no payload, no message.

local value = redis.pcall('GET', KEYS[1])
if type(value) == 'table' then
  if string.find(value.err, 'WRONGTYPE', 1, true) then
    return {'FOREIGN', 'lock', 'it holds no number'}
  end
  return value
end
if value and (#value > 15 or not string.match(value, '^-?%d+$')) then
  return {'FOREIGN', 'lock', 'it holds no number'}
end
local leased = redis.pcall('ZCARD', KEYS[2])
if type(leased) == 'table' then
  if string.find(leased.err, 'WRONGTYPE', 1, true) then
    return {'FOREIGN', 'leases', 'it holds no sorted set'}
  end
  return leased
end
local gone = redis.call('DEL', KEYS[1], KEYS[2])
if gone == 0 then
  return {'OK', 0, 1}
end
if ARGV[2] == '' then
  return {'OK', 1, 1}
end
return {'OK', 1, type(redis.pcall('PUBLISH', ARGV[1], ARGV[2])) == 'table' and 0 or 1}
