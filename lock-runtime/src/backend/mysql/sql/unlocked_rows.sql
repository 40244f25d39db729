-- Which of these rows nobody has locked.
-- $1 names, $2 holders, $3 leases in µs
SELECT l.name
FROM {rows} AS r STRAIGHT_JOIN {table} AS l FORCE INDEX (PRIMARY) ON l.name = UNHEX(r.c1)
FOR UPDATE /*!80001 OF l */ SKIP LOCKED
