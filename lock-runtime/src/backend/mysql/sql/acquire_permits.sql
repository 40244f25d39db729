-- Leases permits, if as many are free. A semaphore that is not set is set to $6, unless that is 0. So is one whose number a
-- request has set and whose leases are all over.
--
-- Assignments see those before them. So `writer_until` notes whether the number goes: no writer waits for a semaphore, and
-- that moment is long over.
-- $1 name, $2 holder, $3 lease in µs, $4 refused after this, $5 how many, $6 how many there are in all
UPDATE {table} AS l SET
    kind = 'semaphore',
    writer_until = IF({is_over}, 1, 0),
    expires_at = IF(permits IS NULL OR writer_until = 1, $6, expires_at),
    permits = IF(permits IS NULL OR writer_until = 1, $6, permits),
    shares = JSON_MERGE_PRESERVE(
        COALESCE({live_others}, '[]'), JSON_ARRAY(JSON_OBJECT('h', {me}, 'e', {micros} + $3, 'u', $5))),
    queue = NULL,
    holder = NULL
WHERE l.name = $1 AND {micros} <= $4 AND {is_primary}
    AND IF({is_over} OR {is_unused}, $6, permits) - {used_by_others} >= $5
