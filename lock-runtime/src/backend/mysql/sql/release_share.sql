-- Gives back a read or permits. After the last read, a writer that waits has to come soon. With its last permit, a semaphore
-- that a request has set is not set any more.
-- $1 name, $2 holder, $4 for how many µs readers are still kept out
UPDATE {table} AS l SET
    writer_until = IF({live_others} IS NULL, LEAST(writer_until, {micros} + $4), writer_until),
    permits = IF({live_others} IS NULL AND {is_by_request}, NULL, permits),
    expires_at = IF({was_by_request}, {micros}, expires_at),
    shares = {live_others}
WHERE l.name = $1 AND EXISTS (SELECT 1 FROM {shared} AS s WHERE s.h = $2 AND s.e > {micros})
