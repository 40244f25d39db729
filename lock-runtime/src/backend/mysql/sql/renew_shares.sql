-- Extends reads and permits, never shortening one. Answers as `renew` does. Several of one row are one update of it.
--
-- A renewal that waits for its row leaves none out: `kinds/renewals.rs` takes the two words away.
-- $1 names, $2 holders, $3 leases in µs
SET @began = {micros};
UPDATE (
    SELECT f.name, w.leases
    FROM {groups} AS w STRAIGHT_JOIN {table} AS f FORCE INDEX (PRIMARY) ON f.name = UNHEX(w.name)
    LIMIT {count}
    FOR UPDATE /*!80001 OF f */ SKIP LOCKED
) AS g STRAIGHT_JOIN {table} AS l FORCE INDEX (PRIMARY) ON l.name = g.name
SET l.shares = (
    SELECT JSON_ARRAYAGG(JSON_OBJECT('h', s.h, 'u', s.u, 'e', IF(
        s.e > {micros},
        GREATEST(s.e, {micros} + CAST(COALESCE(JSON_EXTRACT(g.leases, CONCAT('$."', s.h, '"')), 0) AS SIGNED)),
        s.e)))
    FROM {shared} AS s
)
WHERE l.shares IS NOT NULL;
SELECT l.name, s.h, s.e >= @began + r.c3, {is_primary} AS is_primary
FROM {rows} AS r
STRAIGHT_JOIN {table} AS l ON l.name = UNHEX(r.c1)
STRAIGHT_JOIN {shared} AS s ON s.h = UNHEX(r.c2)
WHERE s.e > {micros}
UNION ALL
SELECT NULL, NULL, NULL, {is_primary}
