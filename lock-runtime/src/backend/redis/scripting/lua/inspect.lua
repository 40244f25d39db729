-- Reads the state of a lock, and changes nothing.
--
-- Flags: no-writes
-- Uses: digits, refusal, holder, mode, timeout_key, readers
-- Keys: lock, queue
-- Args:
-- Returns: {'FREE'} | {'HELD', holder, count, pttl_ms, 'read', readers} | {'HELD', holder, count, pttl_ms, 'write', 0}
--          | {'HELD', holder, count, pttl_ms, 'exclusive', queued, waiter, ...} | {'FOREIGN', key, why}
-- Why: One answer is about one moment. With no-writes, the script also runs on a replica or a full disk. Dead
--      readers are not counted; a lock that only dead readers have is free. Readers that one
--      script may not look at count as alive. The reply names 16 waiters at most, each cut to the length of one of our
--      ids.

local lock = KEYS[1]
local fields = redis.pcall('HLEN', lock)
local foreign = refusal(fields, lock, 'hash')
if foreign then
  return foreign
end
if fields == 0 then
  return {'FREE'}
end

if fields == 1 then
  local holder, count, miscounted = sole_holder(lock, fields)
  if miscounted then
    return miscounted
  end
  local queued = redis.pcall('LLEN', KEYS[2])
  queued = type(queued) == 'number' and queued or 0
  local held = {'HELD', holder, count, redis.call('PTTL', lock), 'exclusive', queued}
  local waiters = queued > 0 and redis.pcall('LRANGE', KEYS[2], 0, 15) or {}
  for _, waiter in ipairs(waiters) do
    held[#held + 1] = string.sub(waiter, 1, 64)
  end
  return held
end

local mode, foreign = mode_of(lock)
if foreign then
  return foreign
end

local seen, any, readers, looked = nil, nil, 0, 0
local out_of_steps, miscounted = each_holder(lock, function(field, count)
  any = {field, digits(count)}
  looked = looked + 1
  local writer = string.match(field, '^(.*):write$')
  if mode == 'write' and writer then
    seen = {writer, digits(count)}
  elseif mode == 'read' and each_lease(lock, field, count, may_live) then
    seen, readers = seen or any, readers + 1
  end
end)
if miscounted then
  return miscounted
end
if out_of_steps then
  seen, readers = seen or any, readers + fields - 1 - looked
end
if not seen then
  return {'FREE'}
end
return {'HELD', seen[1], seen[2], redis.call('PTTL', lock), mode, readers}
