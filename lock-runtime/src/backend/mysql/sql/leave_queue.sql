-- Gives a fair lock back, or the place in its queue.
-- $1 name, $2 holder
UPDATE {table} AS l SET
    queue = {queue_without},
    expires_at = IF(holder = $2, LEAST(expires_at, {micros}), expires_at),
    holder = IF(holder = $2, NULL, holder)
WHERE l.name = $1 AND ((holder = $2 AND expires_at > {micros}) OR {is_in_queue})
