-- Sets a counter that is not set. Nothing changes: it is, or the name is held by a lock.
-- $1 name, $2 kind, $3 value
INSERT INTO {table} (name, kind) VALUES ($1, $2) ON DUPLICATE KEY UPDATE counter = counter;
UPDATE {table} AS l SET kind = $2, permits = $3, shares = NULL, queue = NULL, holder = NULL, expires_at = 0
WHERE l.name = $1 AND {is_unused}
