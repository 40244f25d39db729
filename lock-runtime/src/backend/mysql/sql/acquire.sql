-- Takes a free lock. Nothing changes: it is not free, has no row, or the request is too late. Shared and counted rows are
-- left to `take_over`. Answers with the token, or for a fenced lock with the count.
--
-- MariaDB does not wait long for a row that another transaction has locked. On MySQL, `@unlocked` names the row.
--
-- The row is locked before its columns and the clock are read, and assignments see those before them.
-- $1 name, $2 holder, $3 lease in µs, $4 refused after this, $5 1 for a fenced lock, else 0
/*M! SET STATEMENT max_statement_time = 0.05 FOR */ UPDATE {table} AS l SET
    kind = 'exclusive',
    holder = $2,
    expires_at = {micros} + $3,
    token = LAST_INSERT_ID(GREATEST(last_token + 1, {micros})),
    last_token = token,
    counter = IF($5 = 1, LAST_INSERT_ID(counter + 1), counter)
WHERE l.name = $1
    AND (holder IS NULL OR expires_at <= {micros} OR holder = $2)
    AND shares IS NULL AND permits IS NULL
    AND {micros} <= $4 AND {is_primary}
