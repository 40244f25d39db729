-- Extends reads and permits, never shortening one. Returns those that are held, and those whose row somebody else has
-- locked: they are left alone. Several of one row are one update of it.
--
-- A renewal that waits for its row leaves none out: `kinds/renewals.rs` takes the two words away.
-- $1 names, $2 holders, $3 leases in µs
WITH wanted AS (
    SELECT name, jsonb_object_agg(holder, lease) AS leases
    FROM unnest($1, $2, $3) AS u (name, holder, lease) GROUP BY name
), free AS (
    SELECT l.name FROM {table} AS l JOIN wanted AS r ON l.name = r.name
    WHERE l.shares IS NOT NULL
    ORDER BY l.name
    FOR NO KEY UPDATE OF l SKIP LOCKED
), renewed AS (
    UPDATE {table} AS l SET
        shares = (
            SELECT jsonb_object_agg(s.key, CASE
                WHEN r.leases ? s.key AND (s.value -> 0)::bigint > {micros_now}
                THEN jsonb_build_array(
                    greatest((s.value -> 0)::bigint, {micros_now} + (r.leases -> s.key)::bigint), s.value -> 1)
                ELSE s.value
            END)
            FROM jsonb_each(l.shares) AS s
        )
    FROM wanted AS r, free
    WHERE l.name = r.name AND free.name = r.name AND l.shares IS NOT NULL
    RETURNING l.name, l.shares, r.leases
)
SELECT l.name, k.holder, true
FROM renewed AS l, jsonb_object_keys(l.leases) AS k (holder)
WHERE (l.shares -> k.holder -> 0)::bigint > {micros_now}
UNION ALL
SELECT l.name, k.holder, false
FROM {table} AS l JOIN wanted AS r ON l.name = r.name, jsonb_object_keys(r.leases) AS k (holder)
WHERE (l.shares -> k.holder -> 0)::bigint > {micros_now} AND l.name NOT IN (SELECT name FROM free)
