-- The record of a manager, if there is one.
-- $1 name
SELECT app, host, process_id, version, began_at FROM {table}_managers WHERE name = $1 AND expires_at > {micros}
