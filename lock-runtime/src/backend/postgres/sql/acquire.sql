-- Takes a free lock. No row: it is not free, has no row, or the request is too late. Shared and counted rows are left to
-- `take_over`, and so are those that another transaction has locked, or had: `xmax` tells that for nothing.
-- $1 name, $2 holder, $3 lease in µs, $4 refused after this, $5 1 for a fenced lock, else 0
UPDATE {table} AS l SET
    kind = 'exclusive',
    holder = $2,
    expires_at = c.now + $3 * interval '1 microsecond',
    token = greatest(l.last_token + 1, {micros}),
    last_token = greatest(l.last_token + 1, {micros}),
    counter = l.counter + $5
FROM (SELECT clock_timestamp() AS now) AS c
WHERE l.name = $1
    AND (l.holder IS NULL OR l.expires_at <= c.now OR l.holder = $2)
    AND l.shares IS NULL AND l.permits IS NULL
    AND l.xmax = '0'
    AND clock_timestamp() <= $4
RETURNING CASE WHEN $5 = 1 THEN l.counter ELSE l.token END, {micros}
