-- Which tables are there: that of the locks, and how many of the two others.
SELECT
    (SELECT COUNT(*) FROM information_schema.TABLES AS t
        WHERE t.TABLE_SCHEMA = {schema} AND t.TABLE_NAME = '{own_name}') AS locks,
    (SELECT COUNT(*) FROM information_schema.TABLES AS t
        WHERE t.TABLE_SCHEMA = {schema} AND t.TABLE_NAME IN ('{own_name}_forced', '{own_name}_managers')) AS others
