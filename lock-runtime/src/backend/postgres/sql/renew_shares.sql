-- Extends reads and permits, never shortening one. Returns those that are held. Several of one row are one update of it.
-- $1 names, $2 holders, $3 leases in µs
UPDATE {table} AS l SET
    shares = (
        SELECT jsonb_object_agg(s.key, CASE
            WHEN r.leases ? s.key AND (s.value -> 0)::bigint > {micros}
            THEN jsonb_build_array(greatest((s.value -> 0)::bigint, {micros} + (r.leases -> s.key)::bigint), s.value -> 1)
            ELSE s.value
        END)
        FROM jsonb_each(l.shares) AS s
    )
FROM (
    SELECT name, jsonb_object_agg(holder, lease) AS leases FROM unnest($1, $2, $3) AS u (name, holder, lease) GROUP BY name
) AS r, (SELECT clock_timestamp() AS now) AS c
WHERE l.name = r.name AND l.shares IS NOT NULL
RETURNING l.name,
    ARRAY(SELECT k FROM jsonb_object_keys(r.leases) AS k WHERE (l.shares -> k -> 0)::bigint > {micros})
