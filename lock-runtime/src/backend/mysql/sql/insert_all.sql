-- Makes the rows of mutexes that were never used, as free.
-- $1 names, $2 refused after this
INSERT INTO {table} (name, kind)
SELECT UNHEX(r.c1), 'exclusive' FROM {rows} AS r WHERE {micros} <= $2 ORDER BY r.c1
ON DUPLICATE KEY UPDATE counter = {table}.counter
