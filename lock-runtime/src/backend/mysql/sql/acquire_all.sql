-- Takes several free mutexes, or none of them. No row: one of them is not free, or has no row, or the request is too late.
--
-- A row that another transaction has locked is not waited for, so two sets cannot wait for each other. What the subquery
-- has locked and found free stays free for the update: nobody else can write it, and a lease that is over stays over.
-- $1 names, $2 holders, $3 leases in µs, $4 refused after this, $5 1 for each fenced lock, else 0
UPDATE {rows} AS r STRAIGHT_JOIN {table} AS l FORCE INDEX (PRIMARY) ON l.name = UNHEX(r.c1) SET
    l.kind = 'exclusive',
    l.holder = UNHEX(r.c2),
    l.expires_at = {micros} + r.c3,
    l.token = GREATEST(l.last_token + 1, {micros}),
    l.last_token = GREATEST(l.last_token + 1, {micros}),
    l.counter = l.counter + r.c5
WHERE (
    SELECT COUNT(*) FROM (
        SELECT f.name FROM {rows} AS w
        STRAIGHT_JOIN {table} AS f FORCE INDEX (PRIMARY) ON f.name = UNHEX(w.c1)
        WHERE (f.holder IS NULL OR f.expires_at <= {micros} OR f.holder = UNHEX(w.c2))
            AND f.shares IS NULL AND f.permits IS NULL
            AND {micros} <= $4 AND {is_primary}
        FOR UPDATE /*!80001 OF f */ SKIP LOCKED
    ) AS free
) = {count};
SELECT l.name, l.token, l.counter, {micros} AS now
FROM {rows} AS r STRAIGHT_JOIN {table} AS l ON l.name = UNHEX(r.c1)
WHERE ROW_COUNT() > 0 AND l.holder = UNHEX(r.c2)
