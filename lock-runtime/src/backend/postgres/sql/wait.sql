-- Says that somebody waits, so that a release notifies, or lets others come first; and, for a writer, that no further reader may
-- come in. No row: there is none, or another transaction has locked it. Only a writer waits for that. Its time counts from when
-- this statement has the row, so it is `clock_timestamp()`: `c.now` was read before.
-- $1 name, $2 whether the caller listens, $3 for how many µs readers are kept out
UPDATE {table} AS l SET
    waited_until = CASE WHEN $2 THEN c.now + interval '10 seconds' ELSE l.waited_until END,
    polled_until = CASE WHEN $2 THEN l.polled_until ELSE c.now + interval '2 seconds' END,
    writer_until = CASE
        WHEN $3 > 0 THEN greatest(l.writer_until, clock_timestamp() + $3 * interval '1 microsecond')
        ELSE l.writer_until
    END
FROM (SELECT clock_timestamp() AS now) AS c
WHERE l.name = $1 AND ($3 > 0 OR {not_locked})
RETURNING 1
