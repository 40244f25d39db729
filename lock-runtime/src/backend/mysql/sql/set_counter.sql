-- Sets a counter that is not set. Nothing changes: it is, or the name is held by a lock.
-- $1 name, $2 kind, $3 value
INSERT INTO {table} (name, kind) SELECT $1, $2 FROM DUAL WHERE {is_primary} ON DUPLICATE KEY UPDATE counter = {table}.counter;
UPDATE {table} AS l SET kind = $2, permits = $3, shares = NULL, queue = NULL, holder = NULL, expires_at = 0
WHERE l.name = $1 AND {is_unused} AND {is_primary}
