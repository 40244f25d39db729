-- Adds permits to a semaphore, which counts as set by hand from now on. Nothing changes: none were set.
-- $1 name, $2 how many
UPDATE {table} AS l SET permits = permits + $2, expires_at = 0 WHERE l.name = $1 AND permits IS NOT NULL AND {is_primary}
