-- What a server is asked before it may keep locks. `drawn` is answered to no other connection. The pause shows whether SYSDATE() is the time of its call. The
-- names are literals: a server looks through all tables otherwise.
SELECT
    VERSION() AS version,
    {schema} IS NOT NULL AS has_schema,
    @@innodb_flush_log_at_trx_commit AS flushed,
    @@log_bin AND @@sync_binlog <> 1 AS loses_log,
    @@log_bin AND @@binlog_format = 'STATEMENT' AS logs_statements,
    (SELECT t.ENGINE FROM information_schema.TABLES AS t
        WHERE t.TABLE_SCHEMA = {schema} AND t.TABLE_NAME = '{own_name}') AS engine,
    (SELECT GROUP_CONCAT(c.COLUMN_NAME SEPARATOR ' ') FROM information_schema.COLUMNS AS c
        WHERE c.TABLE_SCHEMA = {schema} AND c.TABLE_NAME = '{own_name}') AS columns,
    (SELECT c.COLUMN_TYPE FROM information_schema.COLUMNS AS c
        WHERE c.TABLE_SCHEMA = {schema} AND c.TABLE_NAME = '{own_name}' AND c.COLUMN_NAME = 'name') AS type_of_name,
    {micros} AS before_a_pause,
    SLEEP(0.001) AS pause,
    {micros} AS after_a_pause,
    UUID() AS drawn
