-- Makes the rows of names that were never used, as free. The kind of a free row says nothing. A row that is there is not
-- touched: the insert would wait for a transaction that writes it.
-- $1 names, $2 refused after this
INSERT INTO {table} (name, kind, expires_at)
SELECT n, 'exclusive', 'epoch' FROM unnest($1) AS n
WHERE clock_timestamp() <= $2 AND NOT EXISTS (SELECT FROM {table} AS l WHERE l.name = n) ORDER BY n
ON CONFLICT (name) DO NOTHING
