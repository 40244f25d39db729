-- Makes the row of a lock that was never used, as free.
-- $1 name, $2 kind, $3 refused after this
INSERT INTO {table} (name, kind)
SELECT $1, $2 FROM DUAL WHERE {micros} <= $3 AND {is_primary}
ON DUPLICATE KEY UPDATE counter = {table}.counter
