-- Makes the rows of mutexes that were never used, as free.
-- $1 names, $2 refused after this
INSERT INTO {table} (name, kind, expires_at)
SELECT n, 'exclusive', 'epoch' FROM unnest($1) AS n WHERE clock_timestamp() <= $2 ORDER BY n
ON CONFLICT (name) DO NOTHING
