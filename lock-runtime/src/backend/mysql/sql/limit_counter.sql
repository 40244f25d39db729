-- Sets how many permits there are in all. Nothing changes: there are as many, or the name is held by a lock.
-- $1 name, $2 value
INSERT INTO {table} (name, kind) SELECT $1, 'semaphore' FROM DUAL WHERE {is_primary}
ON DUPLICATE KEY UPDATE counter = {table}.counter;
UPDATE {table} AS l SET
    kind = 'semaphore',
    shares = IF(permits IS NULL, NULL, shares),
    permits = $2,
    queue = NULL,
    holder = NULL,
    expires_at = 0
WHERE l.name = $1 AND (permits IS NOT NULL OR {is_unused}) AND {is_primary}
