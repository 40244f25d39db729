-- What stands at a name. Changes nothing.
-- $1 name, $2 how many waiters are named
SELECT
    l.kind,
    CASE WHEN l.expires_at > c.now THEN l.holder END AS holder,
    (extract(epoch FROM least(l.expires_at, c.now + {longest}) - c.now) * 1000000)::bigint AS left_of_hold,
    s.count AS shares,
    s.units,
    s.first_end - {micros} AS first_left,
    s.last_end - {micros} AS last_left,
    s.one AS sharer,
    l.permits,
    (extract(epoch FROM l.writer_until - c.now) * 1000000)::bigint AS writer_left,
    l.waited_until > c.now + interval '5 seconds' AS waited,
    (SELECT count(*) FROM jsonb_array_elements(l.queue) AS e WHERE (e -> 'd')::bigint > {micros}) AS queued,
    (SELECT string_agg(f.h, ' ' ORDER BY f.n) FROM (
        SELECT q.e ->> 'h' AS h, q.n FROM jsonb_array_elements(l.queue) WITH ORDINALITY AS q (e, n)
        WHERE (q.e -> 'd')::bigint > {micros} ORDER BY q.n LIMIT $2
    ) AS f) AS first_waiters,
    {micros} AS now,
    -- Whether a transaction has locked a row that nobody holds. Seldom asked, because it locks the row itself for a moment.
    CASE WHEN l.xmax <> '0' AND l.permits IS NULL AND s.count = 0 AND (l.holder IS NULL OR l.expires_at <= c.now)
        THEN NOT {can_lock} ELSE false END AS locked,
    l.polled_until > c.now + interval '1 second' AS polled
FROM {table} AS l
CROSS JOIN (SELECT clock_timestamp() AS now) AS c
CROSS JOIN LATERAL (
    SELECT
        count(*) AS count,
        sum((value -> 1)::bigint)::bigint AS units,
        min((value -> 0)::bigint) AS first_end,
        max((value -> 0)::bigint) AS last_end,
        min(key) AS one
    FROM jsonb_each(l.shares) WHERE (value -> 0)::bigint > {micros}
) AS s
WHERE l.name = $1
