-- Takes a free fair lock, if nobody who lives is before the caller in its queue.
-- $1 name, $2 the caller's place, $3 lease in µs, $4 refused after this, $5 holder, $6 whether a row that another transaction
-- has locked is waited for
UPDATE {table} AS l SET
    kind = 'exclusive',
    holder = $5,
    expires_at = c.now + $3 * interval '1 microsecond',
    token = greatest(l.last_token + 1, {micros}),
    last_token = greatest(l.last_token + 1, {micros}),
    shares = NULL,
    queue = {queue_without}
FROM (SELECT clock_timestamp() AS now) AS c
WHERE l.name = $1
    AND (l.holder IS NULL OR l.expires_at <= c.now OR l.holder IN ($2, $5))
    AND l.permits IS NULL
    AND (l.shares IS NULL OR {live} IS NULL)
    AND ($6 OR {not_locked})
    AND (l.holder IN ($2, $5) AND l.expires_at > c.now OR coalesce((
        SELECT q.e ->> 'h' = $2 FROM jsonb_array_elements(l.queue) WITH ORDINALITY AS q (e, n)
        WHERE (q.e -> 'd')::bigint > {micros} OR q.e ->> 'h' = $2
        ORDER BY q.n LIMIT 1
    ), true))
    AND clock_timestamp() <= $4
RETURNING l.token, {micros}
