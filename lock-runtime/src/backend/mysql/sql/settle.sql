-- Gives back whatever an acquire without an answer has taken, or may be taking. Answers with the time before that.
--
-- An acquire that is under way has the row locked, and is waited for. One that comes later looks at its date. So once the
-- answer is after the acquire's date, that acquire cannot happen any more.
-- $1 name, $2 holder
SELECT {micros} AS now;
UPDATE {table} AS l SET
    permits = IF({live_others} IS NULL AND {is_by_request}, NULL, permits),
    expires_at = IF(holder = $2 OR {was_by_request}, {micros}, expires_at),
    holder = IF(holder = $2, NULL, holder),
    shares = {others},
    queue = {queue_without}
WHERE l.name = $1
