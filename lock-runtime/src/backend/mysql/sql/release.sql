-- Gives back what is held alone.
-- $1 name, $2 holder
UPDATE {table} AS l SET holder = NULL, expires_at = {micros}
WHERE l.name = $1 AND holder = $2 AND expires_at > {micros}
