-- Says that somebody waits, so that a release answers that; and, for a writer, that no further reader may come in. Only a writer
-- waits for a row that another transaction has locked.
-- $1 name, $2 for how many µs readers are kept out
UPDATE {table} AS l SET
    waited_until = {micros} + 2000000,
    writer_until = IF($2 > 0, GREATEST(writer_until, {micros} + $2), writer_until)
WHERE l.name = $1
