-- Fragment readers: looks through the reads of a lock.
--
-- Offers: any_read(lock, wanted), whether wanted(PTTL of a read's timeout key) is true of one; the search ends there
-- After: timeout_key
-- Why: Of a reader whose holds were not counted as expected nothing is known: it counts as one without an end, -1.

local function any_read(lock, wanted)
  local cursor = '0'
  repeat
    local page = redis.call('HSCAN', lock, cursor, 'COUNT', 100)
    cursor = page[1]
    for i = 1, #page[2], 2 do
      local reader, count = page[2][i], 0
      if reader ~= 'mode' then
        count = tonumber(page[2][i + 1]) or math.huge
      end
      if count > 10000 and wanted(-1) then
        return true
      end
      for number = 1, math.min(count, 10000) do
        if wanted(redis.call('PTTL', timeout_key(lock, reader, number))) then
          return true
        end
      end
    end
  until cursor == '0'
  return false
end

