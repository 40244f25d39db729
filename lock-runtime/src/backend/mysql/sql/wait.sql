-- Says that somebody waits, so that a release lets others come first; and, for a writer, that no further reader may come in. A
-- writer waits for a row that another transaction has locked. For others, `@unlocked` names the row.
-- $1 name, $3 for how many µs readers are kept out
UPDATE {table} AS l SET
    polled_until = {micros} + 2000000,
    writer_until = IF($3 > 0, GREATEST(writer_until, {micros} + $3), writer_until)
WHERE l.name = $1
