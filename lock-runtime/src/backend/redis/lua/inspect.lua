-- Looks at a lock without touching it.
--
-- Flags: no-writes
-- Uses: refusal, timeout_key
-- Keys: lock, queue
-- Args:
-- Returns: {'FREE'} | {'HELD', holder, count, pttl_ms, 'read', readers} | {'HELD', holder, count, pttl_ms, 'write', 0}
--          | {'HELD', holder, count, pttl_ms, 'exclusive', queued} | {'FOREIGN', 'lock', why}
-- Why: One answer from one moment; no-writes, so that it also runs on a replica or a full disk. Readers without a
--      timeout key are dead and not counted; a lock that only these have is free.

local lock = KEYS[1]
local fields = redis.pcall('HLEN', lock)
local foreign = refusal(fields, 'lock', 'hash')
if foreign then
  return foreign
end
if fields == 0 then
  return {'FREE'}
end

local function read_write(hold)
  local mode, readers, seen = false, 0, false
  for i = 1, #hold, 2 do
    if hold[i] == 'mode' then
      mode = hold[i + 1]
    end
  end
  if mode ~= 'read' and mode ~= 'write' then
    return {'FOREIGN', 'lock', 'it holds a hash of several fields'}
  end
  for i = 1, #hold, 2 do
    local holder, count = hold[i], tonumber(hold[i + 1])
    if holder ~= 'mode' and not (count and count >= 1 and count % 1 == 0) then
      return {'FOREIGN', 'lock', 'it holds a hash without a count'}
    end
    local writer = string.match(holder, '^(.*):write$')
    if mode == 'write' and writer then
      seen = {writer, hold[i + 1]}
    elseif mode == 'read' and holder ~= 'mode' then
      for number = 1, math.min(count, 10000) do
        if redis.call('PTTL', timeout_key(lock, holder, number)) ~= -2 then
          seen, readers = seen or {holder, hold[i + 1]}, readers + 1
          break
        end
      end
    end
  end
  if not seen and mode == 'write' then
    return {'FOREIGN', 'lock', 'it holds a hash of several fields'}
  end
  if not seen then
    return {'FREE'}
  end
  return {'HELD', seen[1], seen[2], redis.call('PTTL', lock), mode, readers}
end

local hold = redis.call('HGETALL', lock)
if fields ~= 1 then
  return read_write(hold)
end
if not string.match(hold[2], '^%d+$') then
  return {'FOREIGN', 'lock', 'it holds a hash without a count'}
end
local queued = redis.pcall('LLEN', KEYS[2])
queued = type(queued) == 'number' and queued or 0
return {'HELD', hold[1], hold[2], redis.call('PTTL', lock), 'exclusive', queued}
