-- Fragment counter: the number of a semaphore or a latch, and the leases beside it.
--
-- Offers: count_at(key), which returns the number, nil if the counter is not set, and the reply of the script if the
--         key holds something else
--         | until_end(leases, index, now_ms), which returns the ms until the lease with that index ends, in the order
--         of their ends; 0 if it has ended, -1 for never
-- After: refusal
-- Why: Numbers of 15 digits are exact in a double. Redisson writes "never" as a date far in the future.

local function count_at(key)
  local text = redis.pcall('GET', key)
  local foreign = refusal(text, key, 'number')
  if foreign then
    return nil, foreign
  end
  if text and (#text > 15 or not string.match(text, '^-?%d+$')) then
    return nil, {'FOREIGN', key, 'it holds no number'}
  end
  return text and tonumber(text) or nil
end

local function until_end(leases, index, now_ms)
  local ends = redis.call('ZRANGE', leases, index, index, 'WITHSCORES')[2]
  local left = ends and tonumber(ends) - now_ms
  if not left or left > 31536000000 then
    return -1
  end
  return math.max(left, 0)
end

