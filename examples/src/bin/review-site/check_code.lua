-- Checks a code, and uses it up.
-- KEYS[1]: the hash of a phone. ARGV[1]: the code that was typed. Returns 1 if it is right, else 0.
-- Why a script: of two sign-ins with one code, at the same time, one may get in; and each wrong try has to count.
local code = redis.call('HGET', KEYS[1], 'code')
if not code then
    return 0
end
if code == ARGV[1] then
    redis.call('DEL', KEYS[1])
    return 1
end
if redis.call('HINCRBY', KEYS[1], 'wrong', 1) == 5 then
    redis.call('DEL', KEYS[1])
end
return 0
