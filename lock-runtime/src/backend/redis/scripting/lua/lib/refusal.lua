-- Fragment refusal: a key that is not what it should be.
--
-- Offers: refusal(reply, which, kind), what a script returns if what it asked with pcall of the key called `which`,
--         which was to be a `kind`, has failed; else nil
-- After:
-- Why: A key of another type is somebody else's and left alone; any other error is the caller's to know as it is.

local function refusal(reply, which, kind)
  if type(reply) == 'table' and reply.err then
    return string.find(reply.err, 'WRONGTYPE', 1, true) and {'FOREIGN', which, 'it holds no ' .. kind} or reply
  end
end

