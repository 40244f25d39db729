INSERT INTO {fences} (lock_name, token) VALUES (?, CAST(? AS SIGNED))
ON DUPLICATE KEY UPDATE token = GREATEST(token, CAST(? AS SIGNED))
