-- Fragment failed: checks the reply of a command that was called with pcall.
--
-- Offers: failed(reply), true for any error | wrong_type(reply), true for an error about the type of the key
-- After:

local function failed(reply)
  return type(reply) == 'table' and reply.err ~= nil
end

local function wrong_type(reply)
  return string.find(reply.err, 'WRONGTYPE', 1, true) ~= nil
end

