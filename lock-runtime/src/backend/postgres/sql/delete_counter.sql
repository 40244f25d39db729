-- Deletes a counter.
-- $1 name, $2 topic, $3 whether those who wait are told
UPDATE {table} AS l SET permits = NULL, shares = NULL
WHERE l.name = $1 AND l.permits IS NOT NULL
RETURNING CASE WHEN $3 AND l.waited_until > clock_timestamp() THEN {notify}('{channel}', $2)::text END
