-- Takes permits for good, if as many are free. No row: they are not, or the request is too late.
--
-- Nobody gives back what comes too late, so the row is locked before the clock is read: an update that has waited for a row
-- which others locked, and left as it was, does not look at its conditions again.
-- $1 name, $2 how many, $3 refused after this
UPDATE {table} AS l SET permits = l.permits - $2, shares = {live}
FROM (
    SELECT clock_timestamp() AS now
    FROM (SELECT FROM {table} AS f WHERE f.name = $1 AND f.permits >= $2 FOR NO KEY UPDATE) AS f
) AS c
WHERE l.name = $1 AND c.now <= $3 AND l.permits - {used} >= $2
RETURNING l.permits
