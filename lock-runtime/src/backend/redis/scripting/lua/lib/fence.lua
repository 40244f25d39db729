-- Fragment fence: the next fencing token.
--
-- Offers: next_token(fence, least, further), which returns the token ('' without a fence), and the reply of the script
--         if no token is possible
-- After: digits, refusal
-- Why: The token is one above the last token, and not below `least`, which is the time, or 1 for a fence that counts by
--      one. The function only reads. Its caller writes the token once no other command can be refused. `further` is the
--      number of tokens that must fit after this one.

local function next_token(fence, least, further)
  if not fence then
    return ''
  end
  local last = redis.pcall('GET', fence)
  local foreign = refusal(last, fence, 'string', 'FENCE')
  if foreign then
    return nil, foreign
  end
  if not last then
    return digits(least)
  end
  -- A double cannot tell the successor of 2^53 - 1 from later numbers.
  if #last > 16 or not string.match(last, '^%d+$') or tonumber(last) >= 9007199254740991 - (further or 0) then
    return nil, {'FENCE', fence, 'it holds `' .. string.sub(last, 1, 40) .. '`, which no fencing token can follow'}
  end
  return digits(math.max(tonumber(last) + 1, least))
end

