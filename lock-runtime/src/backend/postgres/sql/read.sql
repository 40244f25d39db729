-- Takes a read if nobody writes, and no writer waits.
-- $1 name, $2 holder, $3 lease in µs, $4 refused after this
UPDATE {table} AS l SET
    kind = 'read_write',
    holder = NULL,
    shares = coalesce({live}, '{}') || jsonb_build_object($2, jsonb_build_array({micros} + $3, 1))
FROM (SELECT clock_timestamp() AS now) AS c
WHERE l.name = $1
    AND (l.holder IS NULL OR l.expires_at <= c.now)
    AND l.permits IS NULL
    AND (l.writer_until IS NULL OR l.writer_until <= c.now OR l.shares ? $2)
    AND clock_timestamp() <= $4
RETURNING 0, {micros}
