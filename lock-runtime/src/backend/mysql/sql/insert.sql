-- Makes the rows of names that were never used, as free. The kind of a free row says nothing. A row that is there is not
-- touched: the insert would wait for a transaction that writes it. To look for it waits for nobody, for these sessions read
-- what is committed.
-- $1 names, $2 refused after this
INSERT INTO {table} (name, kind)
SELECT UNHEX(r.c1), 'exclusive' FROM {rows} AS r LEFT JOIN {table} AS l ON l.name = UNHEX(r.c1)
WHERE l.name IS NULL AND {micros} <= $2 AND {is_primary} ORDER BY r.c1
ON DUPLICATE KEY UPDATE counter = {table}.counter
