-- Takes a place in a fair lock's queue, or keeps it. Places of those who were silent for too long go.
-- $1 name, $2 holder, $3 for how many µs it keeps its place, $4 its own topic, $5 refused after this
UPDATE {table} AS l SET
    queue = coalesce((
        SELECT jsonb_agg(CASE WHEN q.e ->> 'h' = $2 THEN m.me ELSE q.e END ORDER BY q.n)
        FROM jsonb_array_elements(l.queue) WITH ORDINALITY AS q (e, n)
        WHERE (q.e -> 'd')::bigint > m.now OR q.e ->> 'h' = $2
    ), '[]') || CASE
        WHEN l.queue @> jsonb_build_array(jsonb_build_object('h', $2)) THEN '[]'
        ELSE jsonb_build_array(m.me)
    END
FROM (
    SELECT now AS moment, micros AS now, jsonb_build_object('h', $2, 'd', micros + $3, 't', $4) AS me
    FROM (SELECT now, {micros} AS micros FROM (SELECT clock_timestamp() AS now) AS c) AS t
) AS m
WHERE l.name = $1 AND clock_timestamp() <= $5
RETURNING l.queue -> 0 ->> 'h' = $2,
    CASE WHEN l.holder IS NOT NULL THEN (extract(epoch FROM least(l.expires_at, m.moment + {longest}) - m.moment) * 1000000)::bigint ELSE 0 END,
    m.now
