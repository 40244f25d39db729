-- Fragment lease: how long a key lives.
--
-- Offers: extend(key, lease)
--         | give_lease(key, lease), which returns nil, or the reply of the script after it has undone its writes: by HDEL, which
--         each release needs. Who takes away PEXPIRE may take away DEL with it.
-- After: digits
-- Why: With GT, a late copy never shortens a lease. GT does nothing for a key without an expiry, so such a key gets one
--      by another PEXPIRE.

local function extend(key, lease)
  if redis.call('PEXPIRE', key, digits(lease), 'GT') == 0 and redis.call('PTTL', key) == -1 then
    redis.call('PEXPIRE', key, digits(lease))
  end
end

local function give_lease(key, lease)
  local expires = redis.pcall('PEXPIRE', key, digits(lease))
  if expires ~= 1 then
    return type(expires) == 'table' and expires or redis.error_reply('ERR lock could not be given a lease')
  end
end

