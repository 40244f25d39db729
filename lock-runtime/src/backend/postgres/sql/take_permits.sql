-- Takes permits for good, if as many are free.
-- $1 name, $2 how many
UPDATE {table} AS l SET permits = l.permits - $2, shares = {live}
FROM (SELECT clock_timestamp() AS now) AS c
WHERE l.name = $1 AND l.permits - {used} >= $2
RETURNING l.permits
