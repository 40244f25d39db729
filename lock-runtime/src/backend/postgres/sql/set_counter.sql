-- Sets a counter that is not set. No row: it is, or the name is held by a lock.
--
-- What whoever finds it unset sets again has another `expires_at` than 1970: its row may be deleted while nobody has a permit.
-- $1 name, $2 kind, $3 value, $4 topic, $5 whether it is such a one
INSERT INTO {table} AS l (name, kind, expires_at, permits) VALUES ($1, $2, CASE WHEN $5 THEN clock_timestamp() ELSE 'epoch' END, $3)
ON CONFLICT (name) DO UPDATE SET kind = $2, permits = $3, expires_at = excluded.expires_at, shares = NULL, queue = NULL, holder = NULL
WHERE l.permits IS NULL AND (l.holder IS NULL OR l.expires_at <= clock_timestamp()) AND (l.shares IS NULL OR {live_now} IS NULL)
RETURNING CASE WHEN l.waited_until > clock_timestamp() THEN {notify}('{channel}', $4)::text END
