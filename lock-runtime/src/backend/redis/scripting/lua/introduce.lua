-- Keeps a record of a client for a while.
--
-- Flags:
-- Uses: range, digits
-- Keys: client
-- Args: ttl_s, age_s, id, app, host, process_id, version
-- Returns: 1
-- Why: The record is for operators; nothing depends on it. The first PEXPIRE shows whether the last one will be
--      allowed: a record without an expiry would stay for ever. `since` is the time at which the client began, by the
--      server's clock, in seconds since 1970.

local client, ttl, age = KEYS[1], tonumber(ARGV[1]), tonumber(ARGV[2])
local wrong = out_of_range(ttl, 1, LONGEST_LEASE / 1000, 'ttl') or out_of_range(age, 0, 2 ^ 40, 'age')
if wrong then
  return wrong
end
redis.call('PEXPIRE', client, ttl * 1000)
local since = digits(redis.call('TIME')[1] - age)
redis.call('HSET', client, 'id', ARGV[3], 'app', ARGV[4], 'host', ARGV[5], 'process_id', ARGV[6], 'version', ARGV[7],
  'since', since)
redis.call('PEXPIRE', client, ttl * 1000)
return 1
