-- Shortcut of release: the holder gives its lock back, and no tokens.
--
-- Uses: publish
-- Returns: 1 released | 2 released, but the message could not be published

if not KEYS[2] and redis.pcall('HDEL', KEYS[1], ARGV[1]) == 1 then
  return published(ARGV[2], ARGV[3]) and 1 or 2
end

