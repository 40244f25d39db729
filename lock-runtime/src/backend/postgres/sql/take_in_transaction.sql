-- Takes a free lock for the transaction that runs this: its row is locked until that has ended. Nobody is waited for. A commit
-- tells those who wait. The answer is a text: where the statement ran, and `taken` with the token, `refused`, or `isolation`.
-- The parameters are texts, so that any driver can send them.
-- $1 name, $2 topic, empty if nobody is told, $3 1 for a fenced lock, else 0
WITH free AS (
    SELECT l.name FROM {table} AS l
    WHERE l.name = $1::text
        AND (l.holder IS NULL OR l.expires_at <= clock_timestamp())
        AND (l.shares IS NULL OR {live_now} IS NULL)
        AND l.permits IS NULL
        AND current_setting('transaction_isolation') = 'read committed'
    FOR NO KEY UPDATE SKIP LOCKED
), taken AS (
    UPDATE {table} AS l SET
        kind = 'exclusive',
        holder = NULL,
        expires_at = c.now,
        token = greatest(l.last_token + 1, {micros}),
        last_token = greatest(l.last_token + 1, {micros}),
        counter = l.counter + $3::text::bigint,
        shares = NULL,
        writer_until = NULL
    FROM free, (SELECT clock_timestamp() AS now) AS c
    WHERE l.name = free.name
    RETURNING
        CASE WHEN $3::text = '1' THEN l.counter ELSE l.token END AS token,
        CASE WHEN $2::text <> '' THEN pg_notify('{channel}', $2::text)::text END AS told,
        CASE WHEN l.queue -> 0 IS NOT NULL THEN pg_notify('{channel}', l.queue -> 0 ->> 't')::text END AS told_the_first
)
SELECT concat_ws(' ', {place}, coalesce(
    (SELECT concat_ws(' ', 'taken', t.token) FROM taken AS t),
    CASE current_setting('transaction_isolation') WHEN 'read committed' THEN 'refused' ELSE 'isolation' END
))
