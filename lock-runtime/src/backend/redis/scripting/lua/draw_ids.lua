-- Draws consecutive ids.
--
-- Flags:
-- Uses: digits, range, refusal, last_id
-- Keys: source
-- Args: count, secret?
-- Returns: {'OK', seconds of the first id, its low half, secret or ''} | {'EARLY'}
--          | {'OTHERWISE', 0 | 1 its ids are shuffled} | {'CLOCK'} | {'FOREIGN', key, why}
-- Why: The first id is the one after the last, or the server's time if that is later. An id is two numbers here: its
--      seconds since 2026, and the 32 bits below them. The key expires a day after the time of its last id. From then
--      on, the clock alone gives later ids; a clock that is set back keeps the key for longer. Shuffled ids do not
--      begin a block of 2^22 before the clock has reached that block, unless the clock was set back. So a new source
--      may begin with the next block: no id of that block was shuffled by a secret that is lost.

local EPOCH, SECOND, PER_MICRO, BLOCK, DAY_MS = 1767225600, 4294967296, 4294, 4194304, 86400000

local source, count, secret = KEYS[1], tonumber(ARGV[1]), ARGV[2]

local wrong = out_of_range(count, 1, 10000, 'count')
if wrong then
  return wrong
end

local kept = redis.pcall('GET', source)
local foreign = refusal(kept, source, 'string')
if foreign then
  return foreign
end

local time = redis.call('TIME')
local now, now_low = time[1] - EPOCH, time[2] * PER_MICRO
local now_block = math.floor(now_low / BLOCK)

-- The last id.
local last, last_low
if kept then
  local kept_secret
  last, last_low, kept_secret = last_id(kept)
  if not last then
    return {'FOREIGN', source, 'it holds `' .. string.sub(kept, 1, 40) .. '`, which no id can follow'}
  end
  if (kept_secret ~= nil) ~= (secret ~= nil) then
    return {'OTHERWISE', kept_secret and 1 or 0}
  end
  secret = kept_secret
elseif secret then
  last, last_low = now, (now_block + 1) * BLOCK - 1
else
  last, last_low = now, now_low - 1
end

local function later(seconds, low, by)
  low = low + by
  if low >= SECOND then
    return seconds + 1, low - SECOND
  end
  return seconds, low
end

local function keep(seconds, low)
  local ttl = math.max(seconds - now, 0) * 1000 + DAY_MS
  local tail = secret and '-' .. secret or ''
  redis.call('SET', source, digits(seconds) .. '-' .. digits(low) .. tail, 'PX', digits(ttl))
end

local first, first_low = later(last, last_low, 1)
if now > first or now == first and now_low > first_low then
  first, first_low = now, now_low
end
local after, after_low = later(first, first_low, count)
if now < 0 or now >= 2147483648 or after >= 2147483648 then
  return {'CLOCK'}
end

if secret then
  local end_, end_low = later(first, first_low, count - 1)
  local end_block, last_block = math.floor(end_low / BLOCK), math.floor(last_low / BLOCK)
  local ends_later = end_ > now or end_ == now and end_block > now_block
  local was_set_back = last > now or last == now and last_block > now_block
  if ends_later and not was_set_back then
    keep(last, last_low)
    return {'EARLY'}
  end
end

keep(later(first, first_low, count - 1))
return {'OK', digits(first), digits(first_low), secret or ''}
