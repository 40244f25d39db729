-- Sets how many permits there are in all. No row: the name is held by a lock.
-- $1 name, $2 value, $3 topic
INSERT INTO {table} AS l (name, kind, expires_at, permits) VALUES ($1, 'semaphore', 'epoch', $2)
ON CONFLICT (name) DO UPDATE SET kind = 'semaphore', permits = $2,
    shares = CASE WHEN l.permits IS NULL THEN NULL ELSE l.shares END, queue = NULL, holder = NULL, expires_at = 'epoch'
WHERE l.permits IS NOT NULL OR {is_unused}
RETURNING CASE WHEN l.waited_until > clock_timestamp() THEN {notify}('{channel}', $3)::text END
