-- Gives back what is held alone, and tells those who wait. Answers whether somebody waits.
-- $1 name, $2 holder, $3 topic
UPDATE {table} AS l SET
    holder = NULL,
    expires_at = clock_timestamp()
WHERE l.name = $1 AND l.holder = $2 AND l.expires_at > clock_timestamp()
RETURNING
    l.waited_until > clock_timestamp(),
    CASE WHEN l.waited_until > clock_timestamp() THEN {tell}('{channel}', $3)::text END
