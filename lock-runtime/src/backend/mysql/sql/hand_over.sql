-- Makes another holder of what is held alone, and sets tokens aside. Tokens that are ahead of the clock already are not:
-- they would run away from it.
-- $1 name, $2 the holder until now, $3 the next one, $4 its lease in µs, $5 refused after this, $6 how many tokens to set
-- aside, $7 how many of `fenced` are given out and set aside
UPDATE {table} AS l SET
    holder = $3,
    expires_at = {micros} + $4,
    token = GREATEST(last_token + 1, {micros}),
    last_token = IF(token > last_token + 1, token + $6, token),
    counter = counter + $7
WHERE l.name = $1 AND (holder = $2 OR holder = $3) AND expires_at > {micros} AND {micros} <= $5 AND {is_primary};
SELECT token, last_token, counter, {micros} AS now, polled_until > {micros} AS others FROM {table} AS l
WHERE l.name = $1 AND holder = $3 AND ROW_COUNT() > 0
