-- Fragment readers: looks through the holders of a read/write lock, as far as one script may.
--
-- Offers: afford(steps), true if the script may still take that number of steps
--         | each_holder(lock, visit), which calls visit(holder, count) until that returns a value
--         | each_lease(lock, reader, count, visit), which calls visit(PTTL of a timeout key) until that returns a value
--         | any_read(lock, wanted), which does both: true if wanted(PTTL, reader) is true for the lease of any read. All
--         return the last result, or OUT_OF_STEPS if the script may take no more steps. Functions that read counts return
--         as their second result the reply of the script if one of them is not a count.
--         | may_live(left, reader), false if that PTTL shows that the reader is dead
-- After: timeout_key, holder
-- Why: Others may write such a hash, with any number of fields and with any counts, and the server does nothing else
--      while a script runs. A thousand steps, each for one field or one key, take about a millisecond. A page costs
--      more than its fields: HSCAN may look at a thousand empty places for it. A reader of ours whose timeout key is gone
--      is dead. A reader of Redisson may live: the watchdog of 3.52.0 renews the hash, but not the timeout keys of all of
--      its locks and holds.

local STEPS, PAGE, OUT_OF_STEPS = 1000, 20, 'out of steps'

local function afford(steps)
  STEPS = STEPS - steps
  return STEPS >= 0
end

local function each_holder(lock, visit)
  local cursor = '0'
  repeat
    if not afford(PAGE) then
      return OUT_OF_STEPS
    end
    local page = redis.call('HSCAN', lock, cursor, 'COUNT', 100)
    cursor = page[1]
    local fields = page[2]
    for i = 1, #fields, 2 do
      if fields[i] ~= 'mode' and not counted(fields[i + 1]) then
        return nil, {'FOREIGN', lock, 'it holds a hash without a count'}
      end
    end
    for i = 1, #fields, 2 do
      if fields[i] ~= 'mode' then
        local result = not afford(1) and OUT_OF_STEPS or visit(fields[i], counted(fields[i + 1]))
        if result then
          return result
        end
      end
    end
  until cursor == '0'
end

local function each_lease(lock, reader, count, visit)
  for number = 1, count do
    local result = not afford(1) and OUT_OF_STEPS or visit(redis.call('PTTL', timeout_key(lock, reader, number)), reader)
    if result then
      return result
    end
  end
end

local function any_read(lock, wanted)
  return each_holder(lock, function(reader, count)
    return each_lease(lock, reader, count, wanted)
  end)
end

local function may_live(left, reader)
  return left ~= -2 or string.sub(reader, 15, 15) ~= '8'
end
