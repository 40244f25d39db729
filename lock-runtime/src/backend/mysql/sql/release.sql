-- Gives back what is held alone. Answers whether somebody waits.
-- $1 name, $2 holder
UPDATE {table} AS l SET
    holder = NULL,
    expires_at = IF(LAST_INSERT_ID(polled_until > {micros}), {micros}, {micros})
WHERE l.name = $1 AND holder = $2 AND expires_at > {micros}
