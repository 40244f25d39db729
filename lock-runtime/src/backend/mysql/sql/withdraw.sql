-- Deletes the record of a manager.
-- $1 name
DELETE FROM {table}_managers WHERE name = $1
