-- Takes permits for good, if as many are free.
-- $1 name, $2 how many
UPDATE {table} AS l SET shares = {live}, permits = permits - $2
WHERE l.name = $1 AND permits - {used} >= $2
