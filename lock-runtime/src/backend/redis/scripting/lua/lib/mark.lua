-- Fragment mark: what a renewal does to a hold that is there.
--
-- Offers: renewed(ttl, lock, field, key...), of which the keys carry the lease
-- After: digits, lease
-- Why: 0 only looks. A negative ttl extends as a positive one does, by nothing if it is -1, and then writes the field
--      as it is: an expiry that stays the same, or would be shorter, is no write that replicas are told of.

local function renewed(ttl, lock, field, ...)
  if ttl > 0 or ttl < -1 then
    for _, key in ipairs({...}) do
      extend(key, math.abs(ttl))
    end
  end
  if ttl < 0 then
    redis.call('HSET', lock, field, 1)
  end
end
