-- Fragment mark: the writes of a renewal to a hold that is there.
--
-- Offers: extend_or_mark(ttl, lock, field, key...), where the keys carry the lease
-- After: digits, lease
-- Why: A ttl of 0 only checks. A negative ttl extends as a positive one does, or not at all if it is -1, and then
--      writes the field as it is: replicas get no write for an expiry that stays the same, or would be shorter.

local function extend_or_mark(ttl, lock, field, ...)
  if ttl > 0 or ttl < -1 then
    for _, key in ipairs({...}) do
      extend(key, math.abs(ttl))
    end
  end
  if ttl < 0 then
    redis.call('HSET', lock, field, 1)
  end
end
