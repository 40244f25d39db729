-- Fragment readers: looks through the holders of a read/write lock, and no further than one script may.
--
-- Offers: afford(steps), whether the script may still take so many
--         | each_holder(lock, visit), which calls visit(holder, count) until that returns something
--         | each_lease(lock, reader, count, visit), which calls visit(PTTL of a timeout key) until that returns something
--         | any_read(lock, wanted), both: whether wanted(PTTL) is true of the lease of any read
--           All return what was returned last, or TIRED if the script may take no more; those that look at counts
--           return as second the reply if one of them is no count.
-- After: timeout_key, holder
-- Why: Others may write such a hash, with as many fields and with as high counts as they like, and the server does
--      nothing else while a script runs. A thousand steps, of one field or one key each, take it about a millisecond.
--      A page costs more than its fields: HSCAN may look at a thousand empty places for it.

local STEPS, PAGE, TIRED = 1000, 20, 'tired'

local function afford(steps)
  STEPS = STEPS - steps
  return STEPS >= 0
end

local function each_holder(lock, visit)
  local cursor = '0'
  repeat
    if not afford(PAGE) then
      return TIRED
    end
    local page = redis.call('HSCAN', lock, cursor, 'COUNT', 100)
    cursor = page[1]
    local fields = page[2]
    for i = 1, #fields, 2 do
      if fields[i] ~= 'mode' and not counted(fields[i + 1]) then
        return nil, {'FOREIGN', 'lock', 'it holds a hash without a count'}
      end
    end
    for i = 1, #fields, 2 do
      if fields[i] ~= 'mode' then
        local said = not afford(1) and TIRED or visit(fields[i], counted(fields[i + 1]))
        if said then
          return said
        end
      end
    end
  until cursor == '0'
end

local function each_lease(lock, reader, count, visit)
  for number = 1, count do
    local said = not afford(1) and TIRED or visit(redis.call('PTTL', timeout_key(lock, reader, number)))
    if said then
      return said
    end
  end
end

local function any_read(lock, wanted)
  return each_holder(lock, function(reader, count)
    return each_lease(lock, reader, count, wanted)
  end)
end

