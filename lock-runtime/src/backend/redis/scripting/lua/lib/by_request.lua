-- Fragment by_request: a semaphore that a request has set.
--
-- Offers: set_to(permits, all, free), sets it; the reply of SET
--         | all_by_request(permits), the number that a request has set it to; nil if somebody has set it by hand
--         | delete_full(permits, leases, free), deletes it if a request has set it and nobody has a permit
-- After: digits
-- Why: Such a semaphore needs no key while it is full, because the next request sets it again. Its expiry says that a request
--      has set it, and to how many permits: eight seconds after the year 2100 for each, so that two nodes between which a
--      slot moves need not have one time. Permits that somebody has taken for good make another number of free ones, and
--      the key stays.

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

