-- Counts a latch down. At zero it is gone, and those who wait are told.
-- $1 name, $2 topic
UPDATE {table} AS l SET permits = nullif(greatest(l.permits - 1, 0), 0),
    shares = CASE WHEN l.permits > 1 THEN l.shares END
WHERE l.name = $1 AND l.permits IS NOT NULL
RETURNING coalesce(l.permits, 0),
    CASE WHEN l.permits IS NULL AND l.waited_until > clock_timestamp() THEN {notify}('{channel}', $2)::text END
