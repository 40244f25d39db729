-- Why several mutexes could not be had: how many of them have a row, whether somebody has one, and what time it is.
-- Changes nothing.
-- $1 names, $2 holders
SELECT
    count(*),
    coalesce(bool_or(
        l.permits IS NOT NULL
        OR (l.holder <> ALL ($2) AND l.expires_at > c.now)
        OR (l.shares IS NOT NULL AND {live} IS NOT NULL)
    ), false),
    {micros_now}
FROM {table} AS l, (SELECT clock_timestamp() AS now) AS c
WHERE l.name = ANY ($1)
