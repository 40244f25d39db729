#!lua
-- Sets a counter if it is not set, and tells waiters.
--
-- Keys: counter, leases
-- Args: value, channel, payload
-- Returns: {'OK', 0 | 1 set, 0 | 1 published or nothing to tell} | {'FOREIGN', 'lock' or 'leases', why}
-- Why: A semaphore that was deleted under its holders gets what their leases leave, so that there are never more
--      permits than were asked for. Publishing is last.

local value = tonumber(ARGV[1])
if not (value and value >= 0 and value <= 1000000000000 and value % 1 == 0) then
  return redis.error_reply('ERR lock count out of range')
end
local stands = redis.pcall('GET', KEYS[1])
if type(stands) == 'table' then
  if string.find(stands.err, 'WRONGTYPE', 1, true) then
    return {'FOREIGN', 'lock', 'it holds no number'}
  end
  return stands
end
if stands then
  if #stands > 15 or not string.match(stands, '^-?%d+$') then
    return {'FOREIGN', 'lock', 'it holds no number'}
  end
  return {'OK', 0, 1}
end
local leased = redis.pcall('ZCARD', KEYS[2])
if type(leased) == 'table' then
  if string.find(leased.err, 'WRONGTYPE', 1, true) then
    return {'FOREIGN', 'leases', 'it holds no sorted set'}
  end
  return leased
end
value = value - leased
redis.call('SET', KEYS[1], string.format('%.0f', value))
if value <= 0 and ARGV[3] == '' then
  return {'OK', 1, 1}
end
local payload = ARGV[3] == '' and string.format('%.0f', value) or ARGV[3]
return {'OK', 1, type(redis.pcall('PUBLISH', ARGV[2], payload)) == 'table' and 0 or 1}
