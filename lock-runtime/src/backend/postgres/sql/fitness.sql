-- What a server is asked before it may keep locks.
-- The sixteenth column is answered to no other connection.
-- Bounds the waits of the session for rows and tables, unless they are bounded already. Lets the session be warned: a commit
-- whose wait for a standby was ended is reported by a warning alone.
-- $1 the table, $2 the bound, $3 whether it ends with this statement
SELECT
    current_setting('server_version_num')::bigint,
    current_setting('server_version'),
    pg_is_in_recovery(),
    current_setting('transaction_read_only') = 'on',
    current_setting('transaction_isolation'),
    current_setting('synchronous_commit'),
    current_setting('server_encoding'),
    current_setting('fsync'),
    to_regclass($1) IS NOT NULL,
    has_table_privilege(to_regclass($1), 'SELECT') AND has_table_privilege(to_regclass($1), 'INSERT')
        AND has_table_privilege(to_regclass($1), 'UPDATE'),
    (SELECT c.relpersistence = 'p' FROM pg_class AS c WHERE c.oid = to_regclass($1)),
    (SELECT string_agg(a.attname::text, ' ' ORDER BY a.attnum) FROM pg_attribute AS a
        WHERE a.attrelid = to_regclass($1) AND a.attnum > 0 AND NOT a.attisdropped),
    {micros_now},
    has_function_privilege('pg_notify(text, text)', 'EXECUTE'),
    CASE WHEN current_setting('lock_timeout') = '0' THEN set_config('lock_timeout', $2, $3) END,
    concat_ws(' ', pg_backend_pid(), clock_timestamp(), random(), random()),
    CASE WHEN current_setting('client_min_messages') = 'error' THEN set_config('client_min_messages', 'warning', $3) END,
    row_security_active(to_regclass($1))
