WITH raised AS (
    INSERT INTO {fences} AS f (lock_name, token) VALUES ($1::text, $2::text::bigint)
    ON CONFLICT (lock_name) DO UPDATE SET token = EXCLUDED.token
    WHERE f.token <= EXCLUDED.token
    RETURNING 1
)
SELECT CASE WHEN EXISTS (SELECT FROM raised) THEN 'raised' ELSE 'refused' END
