-- Shortcut of release: the holder gives its lock back, and no tokens.
--
-- Uses: publish, told
-- Returns: 1 released | 2 released, but the message could not be published | 3 released, and somebody heard it

if not KEYS[2] and redis.pcall('HDEL', KEYS[1], ARGV[1]) == 1 then
  return told(ARGV[2], ARGV[3])
end

