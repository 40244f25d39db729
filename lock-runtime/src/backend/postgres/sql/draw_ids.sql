-- Draws ids that follow one another, and answers with the first one. No row: there is no row of that name, it is used for
-- something else, the source is not `$3`, or the clock gives no ids. `token` has the last id, and the row is free again a day
-- after the time that this id tells: by then, the clock alone gives later ids.
--
-- A new source of shuffled ids begins with the next block of 2^22 ids.
-- $1 name, $2 how many, $3 what stands for the holder: `ids`, or `ids:` and the secret of a source that shuffles
WITH drawn AS (
    SELECT l.name,
        CASE
            WHEN l.kind = 'ids' AND l.holder = $3 AND l.expires_at > t.now THEN greatest(l.token + 1, t.id)
            WHEN $3 = 'ids' THEN t.id
            ELSE ((t.id >> 22) + 1) << 22
        END AS first
    FROM {table} AS l, (
        SELECT c.now, (({micros} / 1000000 - 1767225600) << 32) + {micros} % 1000000 * 4294 AS id
        FROM (SELECT clock_timestamp() AS now) AS c
    ) AS t
    WHERE l.name = $1
        AND t.id >= 0
        AND (l.holder IS NULL OR l.expires_at <= t.now OR (l.kind = 'ids' AND l.holder = $3))
        AND l.permits IS NULL
        AND (l.shares IS NULL OR {live_now} IS NULL)
    FOR UPDATE OF l
)
UPDATE {table} AS l SET
    kind = 'ids',
    holder = $3,
    token = d.first + $2 - 1,
    expires_at = to_timestamp(1767225600 + ((d.first + $2 - 1) >> 32)) + interval '1 day',
    shares = NULL,
    queue = NULL
FROM drawn AS d
WHERE l.name = d.name
RETURNING d.first
