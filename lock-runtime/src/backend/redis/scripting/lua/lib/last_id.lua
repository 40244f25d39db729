-- Fragment last_id: the last id of a source, as its key holds it.
--
-- Offers: last_id(text), which returns its seconds, its low half, and the secret of a source that shuffles; nil if the
--         text is not an id
-- After:
-- Why: The key holds two numbers, because a double cannot hold 63 bits: `seconds-low`, or `seconds-low-secret`.

local function last_id(text)
  local seconds, low, tail = string.match(text, '^(%d+)%-(%d+)(.*)$')
  if not seconds or #seconds > 10 or #low > 10 then
    return nil
  end
  local secret = string.match(tail, '^%-(%x+)$')
  if tail ~= '' and not (secret and #secret == 32) then
    return nil
  end
  seconds, low = tonumber(seconds), tonumber(low)
  if seconds >= 2147483648 or low >= 4294967296 then
    return nil
  end
  return seconds, low, secret
end

