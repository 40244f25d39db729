-- Extends holds, never shortening one. Returns those that are held.
-- $1 names, $2 holders, $3 leases in µs
UPDATE {table} AS l SET
    expires_at = greatest(l.expires_at, c.now + r.lease * interval '1 microsecond')
FROM unnest($1, $2, $3) AS r (name, holder, lease), (SELECT clock_timestamp() AS now) AS c
WHERE l.name = r.name AND l.holder = r.holder AND l.expires_at > c.now
RETURNING l.name, l.holder
