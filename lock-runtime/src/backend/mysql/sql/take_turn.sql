-- Takes a free fair lock, if nobody who lives is before the caller in its queue.
-- $1 name, $2 the caller's place, $3 lease in µs, $4 refused after this, $5 holder, $6 whether a row that another transaction
-- has locked is waited for: if not, the row is named by `@unlocked`
UPDATE {table} AS l SET
    kind = 'exclusive',
    holder = $5,
    expires_at = {micros} + $3,
    token = LAST_INSERT_ID(GREATEST(last_token + 1, {micros})),
    last_token = token,
    shares = NULL,
    queue = {queue_without}
WHERE l.name = $1
    AND (holder IS NULL OR expires_at <= {micros} OR holder IN ($2, $5))
    AND permits IS NULL
    AND (shares IS NULL OR {live} IS NULL)
    AND (holder IN ($2, $5) AND expires_at > {micros} OR COALESCE((
        SELECT q.h = $2 FROM {queued} AS q WHERE q.d > {micros} OR q.h = $2 ORDER BY q.n LIMIT 1
    ), TRUE))
    AND {micros} <= $4 AND {is_primary}
