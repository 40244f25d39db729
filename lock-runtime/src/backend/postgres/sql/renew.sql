-- Extends holds, never shortening one. Returns those that are held, and those whose row somebody else has locked: they
-- are left alone, so that one of them does not keep all others waiting.
--
-- A renewal that waits for its row leaves none out: `kinds/renewals.rs` takes the two words away.
-- $1 names, $2 holders, $3 leases in µs
WITH free AS (
    SELECT l.name FROM {table} AS l
    JOIN unnest($1, $2) AS r (name, holder) ON l.name = r.name AND l.holder = r.holder
    ORDER BY l.name
    FOR NO KEY UPDATE OF l SKIP LOCKED
), renewed AS (
    UPDATE {table} AS l SET
        expires_at = greatest(l.expires_at, clock_timestamp() + r.lease * interval '1 microsecond')
    FROM unnest($1, $2, $3) AS r (name, holder, lease), free
    WHERE l.name = r.name AND free.name = r.name AND l.holder = r.holder AND l.expires_at > clock_timestamp()
    RETURNING l.name, l.holder
)
SELECT name, holder, true FROM renewed
UNION ALL
SELECT l.name, l.holder, false FROM {table} AS l
JOIN unnest($1, $2) AS r (name, holder) ON l.name = r.name AND l.holder = r.holder
WHERE l.expires_at > clock_timestamp() AND l.name NOT IN (SELECT name FROM free)
