-- Extends holds, never shortening one. Answers with those that are held.
-- $1 names, $2 holders, $3 leases in µs
UPDATE {rows} AS r STRAIGHT_JOIN {table} AS l FORCE INDEX (PRIMARY) ON l.name = UNHEX(r.c1)
SET l.expires_at = GREATEST(l.expires_at, {micros} + r.c3)
WHERE l.holder = UNHEX(r.c2) AND l.expires_at > {micros};
SELECT l.name, l.holder, TRUE
FROM {rows} AS r STRAIGHT_JOIN {table} AS l ON l.name = UNHEX(r.c1)
WHERE l.holder = UNHEX(r.c2) AND l.expires_at > {micros}
