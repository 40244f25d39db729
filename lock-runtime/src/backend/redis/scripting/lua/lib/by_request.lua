-- Fragment by_request: a semaphore that a request has set.
--
-- Offers: set_to(permits, all, free), which sets the semaphore and returns the reply of SET
--         | all_by_request(permits), which returns the number of permits that a request has set; nil if the semaphore
--         was set by hand
--         | delete_full(permits, leases, free), which deletes a semaphore that a request has set if no permit is taken
-- After: digits
-- Why: Such a semaphore needs no key while it is full, because the next request sets it again. Its expiry shows that a
--      request has set it, and to how many permits: eight seconds after the year 2100 for each permit. So two nodes
--      between which a slot moves need not have exactly the same time. If a caller has taken plain permits, fewer
--      permits are free, and the key stays.

local YEAR_2100, EACH_MS = 4102444800000, 8000

local function set_to(permits, all, free)
  return redis.pcall('SET', permits, digits(free), 'PXAT', digits(YEAR_2100 + all * EACH_MS))
end

local function all_by_request(permits)
  local left = redis.pcall('PTTL', permits)
  if type(left) == 'number' and left > 0 then
    local time = redis.call('TIME')
    local all = math.floor((time[1] * 1000 + time[2] / 1000 + left - YEAR_2100) / EACH_MS + 0.5)
    return all > 0 and all or nil
  end
end

local function delete_full(permits, leases, free)
  if redis.pcall('ZCARD', leases) == 0 and free == all_by_request(permits) then
    redis.pcall('DEL', permits)
  end
end

