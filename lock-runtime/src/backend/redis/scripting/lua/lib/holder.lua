-- Fragment holder: the count that stands beside each holder in a lock's hash.
--
-- Offers: counted(text), the number, or false if it is no count
--         | sole_holder(lock, fields), the holder and its count in a hash of so many fields, and the reply unless it is one
--         field with a count
--         | keeps(holder), whether it keeps its lock between its holds
-- After:
-- Why: Every operation that finds another holder asks here, so that all agree about what is no lock. 15 digits are
--      exact in a double. One that keeps its lock is one of ours (a uuid of version 8) with a number of 19 digits.

local function counted(text)
  return #text <= 15 and string.match(text, '^[1-9]%d*$') and tonumber(text) or false
end

local function sole_holder(lock, fields)
  if fields ~= 1 then
    return nil, nil, {'FOREIGN', 'lock', 'it holds a hash of several fields'}
  end
  local hold = redis.call('HGETALL', lock)
  if not counted(hold[2]) then
    return nil, nil, {'FOREIGN', 'lock', 'it holds a hash without a count'}
  end
  return hold[1], hold[2]
end

local function keeps(holder)
  return #holder == 56 and string.sub(holder, 15, 15) == '8'
end

