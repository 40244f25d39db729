-- Frees the lock of a row that the transaction has locked, once it commits. After a rollback the hold is what it was.
-- ? name in hexadecimal digits, ? holder
UPDATE {table} AS l SET holder = NULL, expires_at = {micros}
WHERE l.name = UNHEX(?) AND holder = ?
