-- Says that somebody waits, so that a release notifies; and, for a writer, that no further reader may come in. No row: there
-- is none, or another transaction has locked it. Only a writer waits for that.
-- $1 name, $2 for how many µs readers are kept out
UPDATE {table} AS l SET
    waited_until = c.now + interval '10 seconds',
    writer_until = CASE
        WHEN $2 > 0 THEN greatest(l.writer_until, c.now + $2 * interval '1 microsecond')
        ELSE l.writer_until
    END
FROM (SELECT clock_timestamp() AS now) AS c
WHERE l.name = $1 AND ($2 > 0 OR {not_locked})
RETURNING 1
