-- Gives back a read or permits, and tells those who wait. After the last read, a writer that waits has to come soon.
-- $1 name, $2 holder, $3 topic, $4 for how many µs readers are still kept out
UPDATE {table} AS l SET
    shares = nullif(coalesce({live}, '{}') - $2, '{}'),
    writer_until = CASE
        WHEN coalesce({live}, '{}') - $2 = '{}' THEN least(l.writer_until, c.now + $4 * interval '1 microsecond')
        ELSE l.writer_until
    END,
    expires_at = greatest(l.expires_at, c.now)
FROM (SELECT clock_timestamp() AS now) AS c
WHERE l.name = $1 AND (l.shares -> $2 -> 0)::bigint > {micros}
RETURNING CASE WHEN l.waited_until > c.now THEN {notify}('{channel}', $3)::text END
