-- Fragment mode: who has a read/write lock.
--
-- Offers: mode_of(lock), 'read', 'write' or false, and the reply if the key is something else
-- After: refusal

local function mode_of(lock)
  local mode = redis.pcall('HGET', lock, 'mode')
  local foreign = refusal(mode, 'lock', 'hash')
  if foreign then
    return nil, foreign
  end
  if mode and mode ~= 'read' and mode ~= 'write' or not mode and redis.call('HLEN', lock) > 0 then
    return nil, {'FOREIGN', 'lock', 'it holds no read/write lock'}
  end
  return mode
end

