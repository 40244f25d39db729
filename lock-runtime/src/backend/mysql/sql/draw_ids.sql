-- Draws ids that follow one another, and answers with the first one, or 0 if their block has not begun. Nothing changes: the
-- same, or there is no row of that name, it is used for something else, the source is not $3, or the clock gives no ids.
-- `token` has the last id, and the row is free again a day after the time that this id tells: by then, the clock alone gives
-- later ids.
--
-- Shuffled ids do not begin a block of 2^22 before the clock has reached it, unless the clock was set back. So a new source
-- may begin with the next block: none of its ids was shuffled by a secret that is lost.
--
-- The clock is read once: its seconds and the rest must be of one moment. Assignments see those before them.
-- $1 name, $2 how many, $3 what stands for the holder: `ids`, or `ids:` and the secret of a source that shuffles
SET @id = (SELECT (c.now DIV 1000000 - 1767225600) * 4294967296 + c.now MOD 1000000 * 4294
    FROM (SELECT {micros} AS now) AS c);
UPDATE {table} AS l SET
    token = IF(
        $3 = 'ids' OR {last_id} DIV 4194304 > @id DIV 4194304
            OR (GREATEST({last_id} + 1, @id) + $2 - 1) DIV 4194304 <= @id DIV 4194304,
        LAST_INSERT_ID(GREATEST({last_id} + 1, @id)) + $2 - 1,
        {last_id} + LAST_INSERT_ID(0)
    ),
    kind = 'ids',
    holder = $3,
    expires_at = (1767225600 + token DIV 4294967296 + 86400) * 1000000,
    shares = NULL,
    queue = NULL
WHERE l.name = $1
    AND @id >= 0
    AND (holder IS NULL OR expires_at <= {micros} OR (kind = 'ids' AND holder = $3))
    AND permits IS NULL
    AND (shares IS NULL OR {live} IS NULL)
    AND {is_primary}
