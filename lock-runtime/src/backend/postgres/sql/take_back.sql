-- Frees a lock whose transaction was rolled back. Says whether the transaction is still open. If it is not, tells those who
-- wait; they could not say so in the row meanwhile. After a commit there is nothing to free.
-- $1 name, $2 holder, $3 topic, empty if nobody is told
WITH freed AS (
    UPDATE {table} AS l SET
        holder = NULL,
        expires_at = clock_timestamp()
    WHERE l.name = $1 AND l.holder = $2 AND l.expires_at > clock_timestamp() AND {not_locked}
    RETURNING CASE WHEN l.queue -> 0 IS NOT NULL THEN {notify}('{channel}', l.queue -> 0 ->> 't')::text END AS told_the_first
), transaction AS (
    SELECT NOT EXISTS (SELECT FROM freed) AND EXISTS (
        SELECT FROM {table} AS l WHERE l.name = $1 AND l.holder = $2 AND l.expires_at > clock_timestamp()
    ) AS is_open
)
SELECT t.is_open, CASE WHEN NOT t.is_open AND $3 <> '' THEN {notify}('{channel}', $3)::text END
FROM transaction AS t
