-- Fragment fence: the next fencing token.
--
-- Offers: next_token(fence, least, further), the token ('' without a fence), and the reply if there can be none
-- After: digits, refusal
-- Why: One above the last, and not below `least`, which is the time, or 1 for a fence that counts by one. It only
--      reads: who calls it writes the token once nothing else can be refused. `further` is how many more must fit.

local function next_token(fence, least, further)
  if not fence then
    return ''
  end
  local last = redis.pcall('GET', fence)
  local foreign = refusal(last, 'fence', 'string')
  if foreign then
    return nil, foreign
  end
  if not last then
    return digits(least)
  end
  -- 2^53 - 1 has no successor that a double can tell from it.
  if #last > 16 or not string.match(last, '^%d+$') or tonumber(last) >= 9007199254740991 - (further or 0) then
    return nil, {'FOREIGN', 'fence', 'it holds `' .. string.sub(last, 1, 40) .. '`, which no fencing token can follow'}
  end
  return digits(math.max(tonumber(last) + 1, least))
end

