-- Finds out what a key holds, so that an error can name it.
--
-- Flags: no-writes
-- Uses: holder, last_id
-- Keys: key
-- Args: leases
-- Returns: 'none' | 'exclusive' | 'read_write' | 'semaphore' | 'counter' | 'ids' | 'hash' | 'string' | 'list'
--          | 'sorted set' | 'other'
-- Why: It is sent only after a refusal. The key of the leases is an argument: a user without rights to it gets a less
--      exact answer, and not another refusal. TYPE would need a right that no other script needs.

local key = KEYS[1]

local function try(...)
  local reply = redis.pcall(...)
  return not (type(reply) == 'table' and reply.err) and reply
end

local fields = try('HLEN', key)
if fields == 0 then
  return 'none'
end
if fields == 1 then
  local _, _, miscounted = sole_holder(key, fields)
  return miscounted and 'hash' or 'exclusive'
end
if fields then
  local mode = try('HGET', key, 'mode')
  return (mode == 'read' or mode == 'write') and 'read_write' or 'hash'
end

local text = try('GET', key)
if text and #text <= 15 and string.match(text, '^-?%d+$') then
  local leased = try('ZCARD', ARGV[1])
  return leased and leased > 0 and 'semaphore' or 'counter'
end
if text and last_id(text) then
  return 'ids'
end
if text then
  return 'string'
end
if try('LLEN', key) then
  return 'list'
end
return try('ZCARD', key) and 'sorted set' or 'other'
