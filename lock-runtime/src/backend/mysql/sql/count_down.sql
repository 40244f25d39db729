-- Counts a latch down, and answers with what is left. At zero it is gone.
-- $1 name
UPDATE {table} AS l SET
    shares = IF(permits > 1, shares, NULL),
    permits = NULLIF(LAST_INSERT_ID(GREATEST(permits - 1, 0)), 0)
WHERE l.name = $1 AND permits IS NOT NULL AND {is_primary}
