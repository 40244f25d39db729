-- Fragment refusal: the reply for a key that holds something else.
--
-- Offers: refusal(reply, key, kind, word), which returns the reply of the script if a command failed that was called with
--         pcall for the key, which should hold a `kind`; else nil. Without `word`, the reply begins with FOREIGN
-- After:
-- Why: A key of another type is left alone, because others use it. Any other error goes to the client as it is.

local function refusal(reply, key, kind, word)
  if type(reply) == 'table' and reply.err then
    return string.find(reply.err, 'WRONGTYPE', 1, true) and {word or 'FOREIGN', key, 'it holds no ' .. kind} or reply
  end
end

