-- Leases permits, if as many are free.
-- $1 name, $2 holder, $3 lease in µs, $4 refused after this, $5 how many
UPDATE {table} AS l SET
    kind = 'semaphore',
    shares = JSON_MERGE_PRESERVE(
        COALESCE({live_others}, '[]'), JSON_ARRAY(JSON_OBJECT('h', {me}, 'e', {micros} + $3, 'u', $5)))
WHERE l.name = $1 AND permits - {used_by_others} >= $5 AND {micros} <= $4 AND {is_primary}
