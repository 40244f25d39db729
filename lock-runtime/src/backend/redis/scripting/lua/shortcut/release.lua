-- Shortcut of release: the holder releases its lock, and returns no tokens.
--
-- Uses: publish, publish_release
-- Returns: 1 released | 2 released, but the message could not be published
--          | 3 or more: two, and the number of listeners that received it

if not KEYS[2] and redis.pcall('HDEL', KEYS[1], ARGV[1]) == 1 then
  return publish_release(ARGV[2], ARGV[3])
end

