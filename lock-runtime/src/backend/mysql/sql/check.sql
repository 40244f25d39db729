-- Which of these are held. Changes nothing.
-- $1 names, $2 holders
SELECT l.name, l.holder, TRUE, {is_primary} AS is_primary
FROM {rows} AS r STRAIGHT_JOIN {table} AS l ON l.name = UNHEX(r.c1)
WHERE l.holder = UNHEX(r.c2) AND l.expires_at > {micros}
UNION ALL
SELECT l.name, s.h, TRUE, {is_primary}
FROM {rows} AS r
STRAIGHT_JOIN {table} AS l ON l.name = UNHEX(r.c1)
STRAIGHT_JOIN {shared} AS s ON s.h = UNHEX(r.c2)
WHERE s.e > {micros}
UNION ALL
SELECT NULL, NULL, NULL, {is_primary}
