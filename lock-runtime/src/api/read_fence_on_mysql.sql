SELECT IF(token = CAST(? AS SIGNED), 'raised', 'refused') FROM {fences} WHERE lock_name = ? FOR UPDATE
