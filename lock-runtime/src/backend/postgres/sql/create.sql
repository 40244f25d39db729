-- Creates what is missing of the tables. Processes that start at once do it one after the other: PostgreSQL refuses all but
-- one of those that create the same table at the same time, with `IF NOT EXISTS`, too.
BEGIN;
SET LOCAL session_authorization TO DEFAULT;
SET LOCAL role TO DEFAULT;
SET LOCAL search_path TO DEFAULT;
SET LOCAL lock_timeout = '10s';
SELECT pg_advisory_xact_lock(hashtext('lock-runtime'), hashtext('{name}'));
{schema};
COMMIT
