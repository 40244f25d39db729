-- Which of these are held. Changes nothing.
-- $1 names, $2 holders
SELECT r.name, r.holder, true
FROM unnest($1, $2) AS r (name, holder)
JOIN {table} AS l ON l.name = r.name
CROSS JOIN (SELECT clock_timestamp() AS now) AS c
WHERE (l.holder = r.holder AND l.expires_at > c.now) OR (l.shares -> r.holder -> 0)::bigint > {micros}
