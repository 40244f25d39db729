-- Whether the server answers, and can be written to.
SELECT 1 / CASE WHEN pg_is_in_recovery() THEN 0 ELSE 1 END
