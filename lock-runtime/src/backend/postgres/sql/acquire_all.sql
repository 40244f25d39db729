-- Takes several free mutexes, or none of them. No row: one of them is not free, or has no row, or the request is too late.
--
-- A set that is busy at first sight is not touched. A row that another transaction has locked is not waited for, so two
-- sets cannot wait for each other. If one of them was taken between the sight and the lock, a division by zero takes all
-- back.
-- $1 names, $2 holders, $3 leases in µs, $4 refused after this, $5 1 for each fenced lock, else 0
WITH free AS (
    SELECT count(*) = cardinality($1) AS all
    FROM {table} AS l, (SELECT clock_timestamp() AS now) AS c
    WHERE l.name = ANY ($1)
        AND (l.holder IS NULL OR l.expires_at <= c.now OR l.holder = ANY ($2))
        AND l.shares IS NULL AND l.permits IS NULL
), locked AS (
    SELECT l.name FROM {table} AS l
    WHERE l.name = ANY ($1) AND (SELECT free.all FROM free)
    ORDER BY l.name
    FOR UPDATE SKIP LOCKED
), taken AS (
    UPDATE {table} AS l SET
        kind = 'exclusive',
        holder = r.holder,
        expires_at = c.now + r.lease * interval '1 microsecond',
        token = greatest(l.last_token + 1, {micros}),
        last_token = greatest(l.last_token + 1, {micros}),
        counter = l.counter + r.counts
    FROM unnest($1, $2, $3, $5) AS r (name, holder, lease, counts), (SELECT clock_timestamp() AS now) AS c
    WHERE l.name = r.name
        AND (SELECT count(*) FROM locked) = cardinality($1)
        AND (l.holder IS NULL OR l.expires_at <= clock_timestamp() OR l.holder = r.holder)
        AND l.shares IS NULL AND l.permits IS NULL
        AND clock_timestamp() <= $4
    RETURNING l.name, l.token, l.counter, {micros} AS now
)
SELECT t.name, t.token, t.counter, t.now,
    1 / CASE WHEN (SELECT count(*) FROM taken) = cardinality($1) THEN 1 ELSE 0 END
FROM taken AS t
