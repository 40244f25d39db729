-- Fragment digits: writes a number as text.
--
-- Offers: digits(number)
-- After:
-- Why: Lua's own conversion writes a number of 16 digits as 1.79e+15.

local function digits(number)
  return string.format('%.0f', number)
end

