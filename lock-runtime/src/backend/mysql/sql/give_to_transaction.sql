-- Whether a hold can be given to the transaction that runs this, and locks its row until that has ended. No row: nothing is
-- held, or somebody has locked the row. It is not waited for: after a wait, the hold may be somebody else's.
-- A strict transaction that looked at the database before it had the lock sees an older version of the row in the subquery,
-- which locks nothing.
-- The answer is a text, and so are the parameters, so that any driver can send them.
-- ? name in hexadecimal digits, ? holder
SELECT IF((SELECT s.holder FROM {table} AS s WHERE s.name = l.name) = l.holder, 'given', 'too early')
FROM {table} AS l
WHERE l.name = UNHEX(?) AND l.holder = ? AND l.expires_at > {micros}
FOR UPDATE SKIP LOCKED
