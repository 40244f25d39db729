-- Draws ids that follow one another, and answers with the first one. Nothing changes: there is no row of that name, it is
-- used for something else, the source is not `$3`, or the clock gives no ids. `token` has the last id, and the row is free
-- again a day after the time that this id tells: by then, the clock alone gives later ids.
--
-- A new source of shuffled ids begins with the next block of 2^22 ids. The clock is read once: its seconds and the rest must
-- be of one moment. Assignments see those before them.
-- $1 name, $2 how many, $3 what stands for the holder: `ids`, or `ids:` and the secret of a source that shuffles
SET @id = (SELECT (c.now DIV 1000000 - 1767225600) * 4294967296 + c.now MOD 1000000 * 4294
    FROM (SELECT {micros} AS now) AS c);
UPDATE {table} AS l SET
    token = LAST_INSERT_ID(CASE
        WHEN kind = 'ids' AND holder = $3 AND expires_at > {micros} THEN GREATEST(token + 1, @id)
        WHEN $3 = 'ids' THEN @id
        ELSE (@id DIV 4194304 + 1) * 4194304
    END) + $2 - 1,
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
