-- Gives back what is held alone, and tells those who listen. Answers whether somebody waits, or did so lately: no message may
-- reach who listens.
-- $1 name, $2 holder, $3 topic
UPDATE {table} AS l SET
    holder = NULL,
    expires_at = clock_timestamp()
WHERE l.name = $1 AND l.holder = $2 AND l.expires_at > clock_timestamp()
RETURNING
    greatest(l.waited_until, l.polled_until) > clock_timestamp(),
    CASE WHEN l.waited_until > clock_timestamp() THEN {notify}('{channel}', $3)::text END
