-- Fragment failed: what a command said that was asked with pcall.
--
-- Offers: failed(reply) | wrong_type(reply), which is one way to fail
-- After:

local function failed(reply)
  return type(reply) == 'table' and reply.err ~= nil
end

local function wrong_type(reply)
  return string.find(reply.err, 'WRONGTYPE', 1, true) ~= nil
end

