-- Leases permits, if as many are free. A semaphore that is not set is set to $6, unless that is 0.
-- $1 name, $2 holder, $3 lease in µs, $4 refused after this, $5 how many, $6 how many there are in all
UPDATE {table} AS l SET
    kind = 'semaphore',
    shares = JSON_MERGE_PRESERVE(
        COALESCE({live_others}, '[]'), JSON_ARRAY(JSON_OBJECT('h', {me}, 'e', {micros} + $3, 'u', $5))),
    expires_at = IF(permits IS NULL, $6, expires_at),
    permits = COALESCE(permits, $6),
    queue = NULL,
    holder = NULL
WHERE l.name = $1 AND {micros} <= $4 AND {is_primary}
    AND COALESCE(permits, IF({is_unused}, $6, NULL)) - {used_by_others} >= $5
