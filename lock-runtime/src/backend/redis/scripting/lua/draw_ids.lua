-- Draws ids that follow one another.
--
-- Flags:
-- Uses: digits, range, refusal, last_id
-- Keys: source
-- Args: count, secret?
-- Returns: {'OK', seconds of the first id, its low half, secret or ''} | {'OTHERWISE', 0 | 1 its ids are shuffled}
--          | {'CLOCK'} | {'FOREIGN', 'lock', why}
-- Why: The first id is the one after the last, or the server's time if that is later. An id is two numbers here, its
--      seconds since 2026 and the 32 bits below them. The key ends a day after the time of its last id. By then, the
--      clock alone gives later ids, and a clock that is set back keeps the key for longer. A new source of shuffled ids
--      begins with the next block of 2^22: those of the present block may have been shuffled by a secret that is lost.

local EPOCH, SECOND, PER_MICRO, BLOCK, DAY_MS = 1767225600, 4294967296, 4294, 4194304, 86400000

local source, count, secret = KEYS[1], tonumber(ARGV[1]), ARGV[2]

local wrong = out_of_range(count, 1, 10000, 'count')
if wrong then
  return wrong
end

local kept = redis.pcall('GET', source)
local foreign = refusal(kept, 'lock', 'string')
if foreign then
  return foreign
end

local time = redis.call('TIME')
local now, low = time[1] - EPOCH, time[2] * PER_MICRO
local seconds = now
if kept then
  local last, last_low, kept_secret = last_id(kept)
  if not last then
    return {'FOREIGN', 'lock', 'it holds `' .. string.sub(kept, 1, 40) .. '`, which no id can follow'}
  end
  if (kept_secret ~= nil) ~= (secret ~= nil) then
    return {'OTHERWISE', kept_secret and 1 or 0}
  end
  secret, last_low = kept_secret, last_low + 1
  if last_low == SECOND then
    last, last_low = last + 1, 0
  end
  if last > seconds or last == seconds and last_low > low then
    seconds, low = last, last_low
  end
elseif secret then
  low = (math.floor(low / BLOCK) + 1) * BLOCK
  if low == SECOND then
    seconds, low = seconds + 1, 0
  end
end

-- The last one, and the one after it, which has to fit as well.
local last, last_low = seconds, low + count - 1
if last_low >= SECOND then
  last, last_low = last + 1, last_low - SECOND
end
if now < 0 or now >= 2147483648 or last >= 2147483648 or last == 2147483647 and last_low + 1 == SECOND then
  return {'CLOCK'}
end

local ttl = math.max(last - now, 0) * 1000 + DAY_MS
local tail = secret and '-' .. secret or ''
redis.call('SET', source, digits(last) .. '-' .. digits(last_low) .. tail, 'PX', digits(ttl))
return {'OK', digits(seconds), digits(low), secret or ''}
