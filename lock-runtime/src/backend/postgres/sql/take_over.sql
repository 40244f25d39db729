-- As `acquire`, of a row with readers, if none of them lives any more: for writers, and for mutexes after readers.
-- $1 name, $2 holder, $3 lease in µs, $4 refused after this, $5 1 for a fenced lock, else 0, $6 kind, $7 whether a row that
-- another transaction has locked is waited for
UPDATE {table} AS l SET
    kind = $6,
    holder = $2,
    expires_at = c.now + $3 * interval '1 microsecond',
    token = greatest(l.last_token + 1, {micros}),
    last_token = greatest(l.last_token + 1, {micros}),
    counter = l.counter + $5,
    shares = NULL,
    writer_until = NULL
FROM (SELECT clock_timestamp() AS now) AS c
WHERE l.name = $1
    AND (l.holder IS NULL OR l.expires_at <= c.now OR l.holder = $2)
    AND l.permits IS NULL
    AND (l.shares IS NULL OR {live} IS NULL)
    AND ($7 OR {not_locked})
    AND clock_timestamp() <= $4
RETURNING CASE WHEN $5 = 1 THEN l.counter ELSE l.token END, {micros}
