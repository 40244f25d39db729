-- Gives back a read or permits. With its last permit, a semaphore that a request has set is not set any more.
-- $1 name, $2 holder
UPDATE {table} AS l SET
    permits = IF({live_others} IS NULL AND {is_by_request}, NULL, permits),
    expires_at = IF({was_by_request}, {micros}, expires_at),
    shares = {live_others}
WHERE l.name = $1 AND EXISTS (SELECT 1 FROM {shared} AS s WHERE s.h = $2 AND s.e > {micros})
