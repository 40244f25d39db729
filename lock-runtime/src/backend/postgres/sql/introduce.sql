-- Keeps a record of a manager for a while, and deletes those of managers that are long gone.
-- $1 name, $2 for how many µs, $3 its age in µs, $4 id, $5 app, $6 host, $7 process id, $8 version
WITH gone AS (
    DELETE FROM {table}_managers WHERE expires_at < clock_timestamp() - interval '1 hour'
)
INSERT INTO {table}_managers AS m (name, id, app, host, process_id, version, began_at, expires_at)
SELECT $1, $4, $5, $6, $7, $8,
    c.now - $3 * interval '1 microsecond', c.now + $2 * interval '1 microsecond'
FROM (SELECT clock_timestamp() AS now) AS c
ON CONFLICT (name) DO UPDATE SET expires_at = excluded.expires_at
