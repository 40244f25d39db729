-- Where the table is, what is missing, and whether the session can be written to.
--
-- The transaction has the user, the role and the search path that sessions begin with: another client of a pooler may have
-- left its own. The default path begins with the schema of the role.
BEGIN;
SET LOCAL session_authorization TO DEFAULT;
SET LOCAL role TO DEFAULT;
SET LOCAL search_path TO DEFAULT;
SELECT
    quote_ident(n.nspname),
    to_regclass('{name}_managers') IS NOT NULL,
    current_setting('transaction_read_only') = 'on',
    quote_ident(current_schema())
FROM (SELECT to_regclass('{name}') AS oid) AS t
LEFT JOIN pg_class AS c ON c.oid = t.oid
LEFT JOIN pg_namespace AS n ON n.oid = c.relnamespace;
COMMIT
