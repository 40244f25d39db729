-- Leases permits, if as many are free. A semaphore that is not set is set to $6, unless that is 0. So is one whose number a
-- request has set and whose leases are all over.
-- $1 name, $2 holder, $3 lease in µs, $4 refused after this, $5 how many, $6 how many there are in all
UPDATE {table} AS l SET
    kind = 'semaphore',
    permits = CASE WHEN l.permits IS NULL OR {is_over} THEN $6 ELSE l.permits END,
    expires_at = CASE WHEN l.permits IS NULL OR {is_over} THEN timestamptz 'epoch' + $6 * interval '1 microsecond' ELSE l.expires_at END,
    shares = coalesce({live}, '{}') || jsonb_build_object($2, jsonb_build_array({micros} + $3, $5)),
    queue = NULL,
    holder = NULL
FROM (SELECT clock_timestamp() AS now) AS c
WHERE l.name = $1 AND clock_timestamp() <= $4
    AND CASE WHEN {is_over} OR {is_unused} THEN $6 ELSE l.permits END - {used_by_others} >= $5
RETURNING 0, {micros}
