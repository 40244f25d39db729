-- What stands at a name; a row of NULLs if nothing does. Changes nothing.
-- $1 name, $2 how many waiters are named
SELECT
    l.kind,
    IF(l.expires_at > {micros}, l.holder, NULL) AS holder,
    l.expires_at - {micros} AS left_of_hold,
    COUNT(s.h) AS shares,
    SUM(s.u) AS units,
    MIN(s.e) - {micros} AS first_left,
    MAX(s.e) - {micros} AS last_left,
    MIN(s.h) AS sharer,
    l.permits,
    l.writer_until - {micros} AS writer_left,
    TRUE AS waited,
    (SELECT COUNT(*) FROM {queued} AS q WHERE q.d > {micros}) AS queued,
    (SELECT SUBSTRING_INDEX(GROUP_CONCAT(q.h ORDER BY q.n SEPARATOR ' '), ' ', $2)
        FROM {queued} AS q WHERE q.d > {micros}) AS first_waiters,
    {micros} AS now,
    -- Whether a transaction has locked a row that nobody holds. The row is locked for a moment itself.
    IF(l.name IS NOT NULL AND (l.holder IS NULL OR l.expires_at <= {micros}) AND l.shares IS NULL AND l.permits IS NULL,
        {unlocked} IS NULL, FALSE) AS locked,
    l.polled_until > {micros} + 1000000 AS polled,
    {is_primary} AS is_primary
FROM (SELECT TRUE) AS one LEFT JOIN {table} AS l ON l.name = $1 LEFT JOIN {shared} AS s ON s.e > {micros}
GROUP BY l.name
