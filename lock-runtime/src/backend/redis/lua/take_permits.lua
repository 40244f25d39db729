#!lua
-- Takes plain permits of a semaphore, all or none.
--
-- Keys: permits
-- Args: how_many, not_after_us
-- Returns: {'OK', time_us} | {'BUSY', time_us} | {'STALE', time_us} | {'SHORT', ''} not set | {'FOREIGN', 'lock', why}
-- Why: A plain permit names no holder, so a second copy takes again: it is sent once, and dated, so that none is taken
--      long after the caller has gone.

local wanted, not_after = tonumber(ARGV[1]), tonumber(ARGV[2])
if not (wanted and wanted >= 1 and wanted <= 1000 and wanted % 1 == 0) then
  return redis.error_reply('ERR lock permits out of range')
end
local time = redis.call('TIME')
local now = time[1] * 1000000 + time[2]
local text = string.format('%.0f', now)
if not (not_after and now <= not_after) then
  return {'STALE', text}
end
local free = redis.pcall('GET', KEYS[1])
if type(free) == 'table' then
  if string.find(free.err, 'WRONGTYPE', 1, true) then
    return {'FOREIGN', 'lock', 'it holds no number'}
  end
  return free
end
if not free then
  return {'SHORT', ''}
end
if #free > 15 or not string.match(free, '^-?%d+$') then
  return {'FOREIGN', 'lock', 'it holds no number'}
end
if tonumber(free) < wanted then
  return {'BUSY', text}
end
redis.call('INCRBY', KEYS[1], -wanted)
return {'OK', text}
