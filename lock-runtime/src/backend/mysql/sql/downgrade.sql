-- Makes a writer a reader.
-- $1 name, $2 holder
UPDATE {table} AS l SET
    shares = JSON_ARRAY(JSON_OBJECT('h', {me}, 'e', expires_at, 'u', 1)),
    holder = NULL,
    expires_at = {micros}
WHERE l.name = $1 AND holder = $2 AND expires_at > {micros}
