-- Fragment each: what became of one of many.
--
-- Offers: answer(renew, ...), what `renew` says of one hold, or 0 for a key of another type, or what went wrong
-- After:
-- Why: What is wrong with one key says nothing about the others.

local function answer(renew, ...)
  local fine, said = pcall(renew, ...)
  if fine then
    return said
  end
  local why = type(said) == 'table' and said.err or tostring(said)
  return string.find(why, 'WRONGTYPE', 1, true) and 0 or why
end

