-- Likes, or takes the like back.
-- KEYS[1]: the sorted set of a review. ARGV[1]: the user. Returns 1 if the user likes it now, else 0.
-- Why a script: two clicks at the same time have to see each other, or both would like.
if redis.call('ZREM', KEYS[1], ARGV[1]) == 1 then
    return 0
end
local now = redis.call('TIME')
redis.call('ZADD', KEYS[1], now[1] * 1000000 + now[2], ARGV[1])
return 1
