-- Sets a counter that is not set. Nothing changes: it is, or the name is held by a lock.
--
-- What whoever finds it unset sets again has another `expires_at` than 0: its row may be deleted while nobody has a permit.
-- $1 name, $2 kind, $3 value, $5 whether it is such a one
INSERT INTO {table} (name, kind) VALUES ($1, $2) ON DUPLICATE KEY UPDATE counter = counter;
UPDATE {table} AS l SET kind = $2, permits = $3, expires_at = IF($5, {micros}, 0), shares = NULL, queue = NULL, holder = NULL
WHERE l.name = $1 AND permits IS NULL
    AND (holder IS NULL OR expires_at <= {micros}) AND (shares IS NULL OR {live} IS NULL)
