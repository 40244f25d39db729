-- Deletes a counter.
-- $1 name
UPDATE {table} AS l SET permits = NULL, shares = NULL WHERE l.name = $1 AND permits IS NOT NULL AND {is_primary}
