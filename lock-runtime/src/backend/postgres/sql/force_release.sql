-- Takes a lock away from its holders, tells them, and those who wait.
-- $1 name, $2 topic
WITH old AS (
    SELECT l.name,
        CASE WHEN l.expires_at > c.now THEN l.holder END AS holder,
        {live} AS shares
    FROM {table} AS l, (SELECT clock_timestamp() AS now) AS c
    WHERE l.name = $1 AND l.kind <> 'ids'
    FOR UPDATE OF l
), freed AS (
    UPDATE {table} AS l SET holder = NULL, shares = NULL,
        permits = CASE WHEN {is_by_request} THEN NULL ELSE l.permits END,
        expires_at = CASE WHEN {is_by_request} THEN clock_timestamp() ELSE least(l.expires_at, clock_timestamp()) END
    FROM old
    WHERE l.name = old.name AND (old.holder IS NOT NULL OR old.shares IS NOT NULL)
    RETURNING old.holder, old.shares, l.queue, l.waited_until
)
SELECT
    {notify}('{channel}', $2)::text,
    CASE WHEN f.queue -> 0 IS NOT NULL THEN {notify}('{channel}', f.queue -> 0 ->> 't')::text END,
    (SELECT count({notify}('{channel}', '!' || v.victim)::text) FROM (
        SELECT f.holder AS victim UNION SELECT jsonb_object_keys(f.shares)
    ) AS v WHERE v.victim IS NOT NULL)
FROM freed AS f
