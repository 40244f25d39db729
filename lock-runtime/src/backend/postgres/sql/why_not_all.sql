-- Why several mutexes could not be had: how many of them have a row, whether somebody has one of them alone, and what
-- time it is. What else may stand there is found out one by one.
-- Changes nothing.
-- $1 names, $2 holders
SELECT
    count(*),
    coalesce(bool_or(l.holder <> ALL ($2) AND l.expires_at > c.now AND l.kind = 'exclusive'), false),
    {micros_now}
FROM {table} AS l, (SELECT clock_timestamp() AS now) AS c
WHERE l.name = ANY ($1)
