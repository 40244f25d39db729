-- Frees a lock whose transaction was rolled back. Says whether the transaction is still open. After a commit there is nothing
-- to free.
-- $1 name, $2 holder
SET @unlocked = {unlocked};
UPDATE {table} AS l SET holder = NULL, expires_at = {micros}
WHERE l.name = @unlocked AND holder = $2 AND expires_at > {micros};
SELECT ROW_COUNT() = 0 AND EXISTS (
    SELECT 1 FROM {table} AS l WHERE l.name = $1 AND l.holder = $2 AND l.expires_at > {micros}
)
