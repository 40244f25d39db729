-- Gives a hold to the transaction that runs this: the row is locked until that has ended. After a commit the lock is free,
-- and those who waited before are told; `take_back` tells those who could not say so in the row meanwhile. After a rollback
-- the hold is what it was.
--
-- Nobody is told unless somebody waits: a transaction with a notice cannot be prepared, and cannot be committed while the
-- queue of notices is full.
-- A stricter transaction that looked at the database before it had the lock does not see the hold.
-- The answer is one row with a text. The parameters are texts, so that any driver can send them.
-- $1 name, $2 holder, $3 topic, empty if nobody is told
WITH given AS (
    UPDATE {table} AS l SET
        holder = NULL,
        expires_at = clock_timestamp()
    WHERE l.name = $1::text AND l.holder = $2::text AND l.expires_at > clock_timestamp()
    RETURNING
        CASE WHEN $3::text <> '' AND l.waited_until > clock_timestamp() AND pg_notification_queue_usage() < 0.5
            THEN {notify}('{channel}', $3::text)::text END AS told,
        CASE WHEN l.queue -> 0 IS NOT NULL AND pg_notification_queue_usage() < 0.5
            THEN {notify}('{channel}', l.queue -> 0 ->> 't')::text END AS told_the_first
)
SELECT CASE
    WHEN EXISTS (SELECT FROM given) THEN 'given'
    WHEN current_setting('transaction_isolation') <> 'read committed' THEN 'too early'
    ELSE 'not held'
END
