-- Changes a value of the cache, unless a later holder of its lock has changed it.
-- KEYS[1]: the value, KEYS[2]: the fence. ARGV: the token, the value or '' to delete it, its life in ms.
-- Returns 1 if it is done, 0 if it came too late.
-- Why a script: compare and write are one step. The fence outlives the value, and every pause of a process.
local fence = tonumber(redis.call('GET', KEYS[2]) or '0')
if tonumber(ARGV[1]) < fence then
    return 0
end
redis.call('SET', KEYS[2], ARGV[1], 'EX', 86400)
if ARGV[2] == '' then
    redis.call('DEL', KEYS[1])
else
    redis.call('SET', KEYS[1], ARGV[2], 'PX', ARGV[3])
end
return 1
