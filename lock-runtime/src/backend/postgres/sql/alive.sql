-- Whether the server can keep locks now: it can be written to, the table is there and open, and the user has the rights.
-- Changes nothing.
WITH inserted AS (
    INSERT INTO {table} (name, kind, expires_at) SELECT 'x', 'exclusive', 'epoch' WHERE false
)
UPDATE {table} AS l SET counter = l.counter WHERE false
