-- Whose locks were taken away lately.
-- $1 for how many µs
SELECT holder FROM {table}_forced WHERE forced_at > {micros} - $1
