-- Makes the row of a lock that was never used, as free.
-- $1 name, $2 kind, $3 refused after this
INSERT INTO {table} (name, kind, expires_at)
SELECT $1, $2, 'epoch' WHERE clock_timestamp() <= $3
ON CONFLICT (name) DO NOTHING
