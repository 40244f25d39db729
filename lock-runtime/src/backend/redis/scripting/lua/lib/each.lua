-- Fragment each: the answer for one hold of many.
--
-- Offers: answer(renew, ...), which returns the result of `renew` for one hold, 0 for a key of another type, or the
--         error
-- After:
-- Why: An error at one key says nothing about the other keys.

local function answer(renew, ...)
  local fine, result = pcall(renew, ...)
  if fine then
    return result
  end
  local why = type(result) == 'table' and result.err or tostring(result)
  return string.find(why, 'WRONGTYPE', 1, true) and 0 or why
end

