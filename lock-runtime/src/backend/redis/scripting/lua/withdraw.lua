-- Deletes the record of a client.
--
-- Flags: allow-oom
-- Uses:
-- Keys: client
-- Args:
-- Returns: 1 if there was one, else 0
-- Why: allow-oom, because it frees memory.

return redis.call('DEL', KEYS[1])
