-- Adds permits. Nothing changes: none were set.
-- $1 name, $2 how many
UPDATE {table} AS l SET permits = permits + $2 WHERE l.name = $1 AND permits IS NOT NULL
