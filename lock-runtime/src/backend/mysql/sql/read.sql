-- Takes a read if nobody writes, and no writer waits.
-- $1 name, $2 holder, $3 lease in µs, $4 refused after this
UPDATE {table} AS l SET
    kind = 'read_write',
    holder = NULL,
    shares = JSON_MERGE_PRESERVE(
        COALESCE({live_others}, '[]'), JSON_ARRAY(JSON_OBJECT('h', {me}, 'e', {micros} + $3, 'u', 1)))
WHERE l.name = $1
    AND (holder IS NULL OR expires_at <= {micros})
    AND permits IS NULL
    AND (writer_until <= {micros} OR {is_in_shares})
    AND {micros} <= $4 AND {is_primary}
