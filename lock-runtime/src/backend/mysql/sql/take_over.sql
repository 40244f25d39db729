-- As `acquire`, of a row with readers, if none of them lives any more: for writers, and for mutexes after readers.
-- $1 name, $2 holder, $3 lease in µs, $4 refused after this, $5 1 for a fenced lock, else 0, $6 kind, $7 whether a row that
-- another transaction has locked is waited for: if not, the row is named by `@unlocked`
UPDATE {table} AS l SET
    kind = $6,
    holder = $2,
    expires_at = {micros} + $3,
    token = LAST_INSERT_ID(GREATEST(last_token + 1, {micros})),
    last_token = token,
    counter = IF($5 = 1, LAST_INSERT_ID(counter + 1), counter),
    shares = NULL,
    writer_until = 0
WHERE l.name = $1
    AND (holder IS NULL OR expires_at <= {micros} OR holder = $2)
    AND permits IS NULL
    AND (shares IS NULL OR {live} IS NULL)
    AND {micros} <= $4 AND {is_primary}
