-- Makes another holder of what is held alone, and sets tokens aside. Tokens that are ahead of the clock already are not:
-- they would run away from it.
-- $1 name, $2 the holder until now, $3 the next one, $4 its lease in µs, $5 refused after this, $6 how many tokens to set
-- aside, $7 how many of `fenced` are given out and set aside
UPDATE {table} AS l SET
    holder = $3,
    expires_at = c.now + $4 * interval '1 microsecond',
    token = greatest(l.last_token + 1, {micros}),
    last_token = CASE WHEN l.last_token < {micros} THEN {micros} + $6 ELSE l.last_token + 1 END,
    counter = l.counter + $7
FROM (SELECT clock_timestamp() AS now) AS c
WHERE l.name = $1 AND (l.holder = $2 OR l.holder = $3) AND l.expires_at > c.now AND clock_timestamp() <= $5
RETURNING l.token, l.last_token, l.counter, {micros}, greatest(l.waited_until, l.polled_until) > c.now
