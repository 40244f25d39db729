-- Fragment holder: the count beside each holder in a lock's hash.
--
-- Offers: counted(text), which returns the number, or false if the text is not a count
--         | sole_holder(lock, fields), which returns the holder and its count in a hash of `fields` fields, and the
--         reply of the script unless the hash is one field with a count
--         | may_keep(holder), true if the holder may keep its lock between its turns
-- After:
-- Why: Every operation that finds another holder checks it here, so that all operations agree about which hash is not a
--      lock. Counts of 15 digits are exact in a double. A holder that keeps its lock is one of ours (a uuid of version
--      8), and its number has 19 digits.

local function counted(text)
  return #text <= 15 and string.match(text, '^[1-9]%d*$') and tonumber(text) or false
end

local function sole_holder(lock, fields)
  if fields ~= 1 then
    return nil, nil, {'FOREIGN', lock, 'it holds a hash of several fields'}
  end
  local hold = redis.call('HGETALL', lock)
  if not counted(hold[2]) then
    return nil, nil, {'FOREIGN', lock, 'it holds a hash without a count'}
  end
  return hold[1], hold[2]
end

local function may_keep(holder)
  return #holder == 56 and string.sub(holder, 15, 15) == '8'
end

