-- Why several mutexes could not be had: how many of them have a row, whether somebody has one of them alone, and what
-- time it is. What else may stand there is found out one by one.
-- Changes nothing.
-- $1 names, $2 holders
SELECT
    COUNT(*) AS there,
    COALESCE(MAX(l.holder <> UNHEX(r.c2) AND l.expires_at > {micros} AND l.kind = 'exclusive'), FALSE) AS busy,
    {micros} AS now
FROM {rows} AS r STRAIGHT_JOIN {table} AS l ON l.name = UNHEX(r.c1)
