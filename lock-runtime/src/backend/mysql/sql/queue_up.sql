-- Takes a place in a fair lock's queue, or keeps it. Places of those who were silent for too long go.
-- $1 name, $2 holder, $3 for how many µs it keeps its place, $5 refused after this
UPDATE {table} AS l SET queue = IF(
    {is_in_queue},
    (SELECT JSON_ARRAYAGG(JSON_OBJECT('h', q.h, 'n', q.n, 'd', IF(q.h = $2, {micros} + $3, q.d)))
        FROM {queued} AS q WHERE q.d > {micros} OR q.h = $2),
    JSON_MERGE_PRESERVE(
        COALESCE({queue_without}, '[]'),
        JSON_ARRAY(JSON_OBJECT('h', {me}, 'd', {micros} + $3,
            'n', COALESCE((SELECT MAX(q.n) FROM {queued} AS q), 0) + 1)))
)
WHERE l.name = $1 AND {micros} <= $5 AND {is_primary};
SELECT
    (SELECT q.h = $2 FROM {queued} AS q WHERE q.d > {micros} ORDER BY q.n LIMIT 1) AS is_first,
    IF(holder IS NULL, 0, expires_at - {micros}) AS left_of_hold
FROM {table} AS l
WHERE l.name = $1 AND ROW_COUNT() > 0
