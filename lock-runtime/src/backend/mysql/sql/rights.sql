-- Writes nothing, and is refused by a server that cannot be written to, or to a user who may not.
SELECT 1 FROM {table} WHERE FALSE;
UPDATE {table} AS l SET counter = counter WHERE FALSE;
INSERT INTO {table} (name, kind) SELECT 'x', 'exclusive' FROM DUAL WHERE FALSE
