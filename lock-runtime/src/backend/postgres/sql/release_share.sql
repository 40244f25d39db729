-- Gives back a read or permits, and tells those who wait. With its last permit, a semaphore that a request has set is not set
-- any more.
-- $1 name, $2 holder, $3 topic
UPDATE {table} AS l SET
    shares = nullif(coalesce({live}, '{}') - $2, '{}'),
    permits = CASE WHEN {leaves_last} THEN NULL ELSE l.permits END,
    expires_at = CASE WHEN l.permits IS NULL OR {leaves_last} THEN greatest(l.expires_at, c.now) ELSE l.expires_at END
FROM (SELECT clock_timestamp() AS now) AS c
WHERE l.name = $1 AND (l.shares -> $2 -> 0)::bigint > {micros}
RETURNING CASE WHEN l.waited_until > c.now THEN {notify}('{channel}', $3)::text END
