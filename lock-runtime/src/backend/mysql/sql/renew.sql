-- Extends holds, never shortening one. Answers with those that are held, and whether they were extended: rows that somebody
-- has locked are left out, so that the others do not wait for them.
--
-- What is extended now ends a lease after `@began`, or later. LIMIT leaves nobody out: without it, an optimizer may merge
-- the derived table into the UPDATE, which waits.
--
-- A renewal that waits for its row leaves none out: `kinds/renewals.rs` takes the two words away.
-- $1 names, $2 holders, $3 leases in µs
SET @began = {micros};
UPDATE (
    SELECT f.name, w.c2, w.c3
    FROM {rows} AS w STRAIGHT_JOIN {table} AS f FORCE INDEX (PRIMARY) ON f.name = UNHEX(w.c1)
    LIMIT {count}
    FOR UPDATE /*!80001 OF f */ SKIP LOCKED
) AS r STRAIGHT_JOIN {table} AS l FORCE INDEX (PRIMARY) ON l.name = r.name
SET l.expires_at = GREATEST(l.expires_at, {micros} + r.c3)
WHERE l.holder = UNHEX(r.c2) AND l.expires_at > {micros};
SELECT l.name, l.holder, l.expires_at >= @began + r.c3, {is_primary} AS is_primary
FROM {rows} AS r STRAIGHT_JOIN {table} AS l ON l.name = UNHEX(r.c1)
WHERE l.holder = UNHEX(r.c2) AND l.expires_at > {micros}
UNION ALL
SELECT NULL, NULL, NULL, {is_primary}
