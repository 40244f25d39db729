-- Fragment mode: the mode of a read/write lock.
--
-- Offers: mode_of(lock), which returns 'read', 'write' or false, and the reply of the script if the key holds something
--         else
-- After: refusal, holder
-- Why: A writer has one field, or reads as well: with `mode`, the hash has three fields at most. If there are few
--      holders, their counts are checked here, so that all operations agree about them. The counts of many holders are
--      checked only by operations that look through all of them anyway; otherwise each of many readers would look at
--      all the others.

local FEW = 5

local function mode_of(lock)
  local mode = redis.pcall('HGET', lock, 'mode')
  local foreign = refusal(mode, lock, 'hash')
  if foreign then
    return nil, foreign
  end
  local fields = redis.call('HLEN', lock)
  if fields == 0 then
    return false
  end
  if mode ~= 'read' and mode ~= 'write' or fields == 1 or mode == 'write' and fields > 3 then
    return nil, {'FOREIGN', lock, 'it holds no read/write lock'}
  end
  if fields <= FEW then
    local hold, writers = redis.call('HGETALL', lock), 0
    for i = 1, #hold, 2 do
      if hold[i] ~= 'mode' and not counted(hold[i + 1]) then
        return nil, {'FOREIGN', lock, 'it holds a hash without a count'}
      end
      writers = writers + (string.sub(hold[i], -6) == ':write' and 1 or 0)
    end
    if mode == 'write' and writers ~= 1 then
      return nil, {'FOREIGN', lock, 'it holds no read/write lock'}
    end
  end
  return mode
end

