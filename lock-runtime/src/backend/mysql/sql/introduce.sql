-- Keeps a record of a manager for a while, and deletes those of managers that are long gone.
-- $1 name, $2 for how many µs, $3 its age in µs, $4 id, $5 app, $6 host, $7 process id, $8 version
DELETE FROM {table}_managers WHERE expires_at < {micros} - 3600000000;
INSERT INTO {table}_managers (name, id, app, host, process_id, version, began_at, expires_at)
VALUES ($1, $4, $5, $6, $7, $8, {micros} - $3, {micros} + $2)
ON DUPLICATE KEY UPDATE expires_at = VALUES(expires_at)
