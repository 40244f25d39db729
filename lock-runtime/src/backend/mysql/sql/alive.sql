-- Whether the server answers, and can be written to.
UPDATE {table} AS l SET counter = counter WHERE FALSE
