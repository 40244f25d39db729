-- Takes permits for good, if as many are free. Nothing changes: they are not, or the request is too late.
-- $1 name, $2 how many, $3 refused after this
UPDATE {table} AS l SET shares = {live}, permits = permits - $2
WHERE l.name = $1 AND {micros} <= $3 AND permits - {used} >= $2 AND {is_primary}
