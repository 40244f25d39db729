-- Draws ids that follow one another, and answers with the first one, or NULL if their block has not begun. No row: there is no
-- row of that name, it is used for something else, the source is not $3, or the clock gives no ids. `token` has the last
-- id, and the row is free again a day after the time that this id tells: by then, the clock alone gives later ids.
--
-- Shuffled ids do not begin a block of 2^22 before the clock has reached it, unless the clock was set back. So a new source
-- may begin with the next block: none of its ids was shuffled by a secret that is lost.
-- $1 name, $2 how many, $3 what stands for the holder: `ids`, or `ids:` and the secret of a source that shuffles
WITH kept AS (
    SELECT l.name, t.id AS now,
        CASE
            WHEN l.kind = 'ids' AND l.holder = $3 AND l.expires_at > t.now THEN l.token
            WHEN $3 = 'ids' THEN t.id - 1
            ELSE t.id | 4194303
        END AS last
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
), drawn AS (
    SELECT k.name, k.last,
        CASE WHEN $3 = 'ids' OR k.last >> 22 > k.now >> 22 OR (greatest(k.last + 1, k.now) + $2 - 1) >> 22 <= k.now >> 22
            THEN greatest(k.last + 1, k.now)
        END AS first
    FROM kept AS k
)
UPDATE {table} AS l SET
    kind = 'ids',
    holder = $3,
    token = coalesce(d.first + $2 - 1, d.last),
    expires_at = to_timestamp(1767225600 + (coalesce(d.first + $2 - 1, d.last) >> 32)) + interval '1 day',
    shares = NULL,
    queue = NULL
FROM drawn AS d
WHERE l.name = d.name
RETURNING d.first
