-- Says that a writer waits: no further reader may come in.
-- $1 name, $2 for how many µs readers are kept out
UPDATE {table} AS l SET writer_until = GREATEST(writer_until, {micros} + $2) WHERE l.name = $1 AND $2 > 0
