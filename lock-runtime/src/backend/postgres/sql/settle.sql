-- Gives back whatever an acquire without an answer has taken, or may be taking.
--
-- It always writes the row. An acquire that is under way is therefore waited for, or, if it has not written yet, finds
-- a newer row and looks at its date again; the first insert of a row is waited for by the conflict. Once this has
-- answered after the acquire's date, that acquire cannot happen any more.
-- $1 name, $2 holder, $3 topic
INSERT INTO {table} AS l (name, kind, expires_at) VALUES ($1, 'exclusive', 'epoch')
ON CONFLICT (name) DO UPDATE SET
    holder = CASE WHEN l.holder = $2 THEN NULL ELSE l.holder END,
    expires_at = CASE WHEN l.holder = $2 OR {leaves_last} THEN clock_timestamp() ELSE l.expires_at END,
    shares = nullif(l.shares - $2, '{}'),
    permits = CASE WHEN {leaves_last} THEN NULL ELSE l.permits END,
    queue = {queue_without}
RETURNING (extract(epoch FROM clock_timestamp()) * 1000000)::bigint,
    CASE WHEN l.waited_until > clock_timestamp() THEN {notify}('{channel}', $3)::text END,
    CASE WHEN l.queue -> 0 IS NOT NULL AND (l.holder IS NULL OR l.expires_at <= clock_timestamp())
        THEN {notify}('{channel}', l.queue -> 0 ->> 't')::text END
