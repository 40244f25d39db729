-- Leases permits, if as many are free.
-- $1 name, $2 holder, $3 lease in µs, $4 refused after this, $5 how many
UPDATE {table} AS l SET
    kind = 'semaphore',
    shares = coalesce({live}, '{}') || jsonb_build_object($2, jsonb_build_array({micros} + $3, $5))
FROM (SELECT clock_timestamp() AS now) AS c
WHERE l.name = $1 AND l.permits - {used_by_others} >= $5 AND clock_timestamp() <= $4
RETURNING 0, {micros}
