-- Shortcut of release: the holder releases its lock, and returns no tokens.
--
-- Uses: publish, publish_release
-- Returns: as the full script

if not KEYS[2] and redis.pcall('HDEL', KEYS[1], ARGV[1]) == 1 then
  return publish_release(ARGV[2])
end

