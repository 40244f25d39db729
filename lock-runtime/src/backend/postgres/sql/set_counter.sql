-- Sets a counter that is not set. No row: it is, or the name is held by a lock.
-- $1 name, $2 kind, $3 value, $4 topic
INSERT INTO {table} AS l (name, kind, expires_at, permits) VALUES ($1, $2, 'epoch', $3)
ON CONFLICT (name) DO UPDATE SET kind = $2, permits = $3, shares = NULL, queue = NULL, holder = NULL, expires_at = 'epoch'
WHERE {is_unused}
RETURNING CASE WHEN l.waited_until > clock_timestamp() THEN {notify}('{channel}', $4)::text END
