-- The record of a manager, if there is one.
-- $1 name
SELECT app, host, process_id, version, (extract(epoch FROM began_at) * 1000000)::bigint
FROM {table}_managers WHERE name = $1 AND expires_at > clock_timestamp()
