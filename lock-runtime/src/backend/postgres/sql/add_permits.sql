-- Adds permits to a semaphore, which counts as set by hand from now on. No row: none were set.
-- $1 name, $2 how many, $3 topic
UPDATE {table} AS l SET permits = l.permits + $2, expires_at = 'epoch'
WHERE l.name = $1 AND l.permits IS NOT NULL
RETURNING CASE WHEN l.waited_until > clock_timestamp() THEN {notify}('{channel}', $3)::text END
