-- Gives a fair lock back, or the place in its queue, and tells the next one whose turn it is.
-- $1 name, $2 holder
UPDATE {table} AS l SET
    holder = CASE WHEN l.holder = $2 THEN NULL ELSE l.holder END,
    expires_at = CASE WHEN l.holder = $2 THEN least(l.expires_at, c.now) ELSE l.expires_at END,
    queue = {queue_without}
FROM (SELECT clock_timestamp() AS now) AS c
WHERE l.name = $1
    AND ((l.holder = $2 AND l.expires_at > c.now) OR l.queue @> jsonb_build_array(jsonb_build_object('h', $2)))
RETURNING CASE WHEN l.queue -> 0 IS NOT NULL AND (l.holder IS NULL OR l.expires_at <= clock_timestamp())
    THEN {notify}('{channel}', l.queue -> 0 ->> 't')::text END
