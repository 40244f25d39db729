-- Makes a writer a reader, and tells those who may read beside it.
-- $1 name, $2 holder, $3 topic
UPDATE {table} AS l SET
    holder = NULL,
    expires_at = clock_timestamp(),
    shares = jsonb_build_object($2, jsonb_build_array((extract(epoch FROM l.expires_at) * 1000000)::bigint, 1))
WHERE l.name = $1 AND l.holder = $2 AND l.expires_at > clock_timestamp()
RETURNING CASE WHEN l.waited_until > clock_timestamp() THEN {notify}('{channel}', $3)::text END
