-- Draws an id.
-- KEYS[1]: a hash with the last id. Returns its seconds since 2026, and its lower 32 bits.
-- Why a script: clock and last id are looked at in one step. Why two numbers: one of 63 bits is no number of Lua.
local now = redis.call('TIME')
local second, low = now[1] - 1767225600, now[2] * 4294
local last = redis.call('HMGET', KEYS[1], 'second', 'low')
local last_second, last_low = tonumber(last[1] or 0), tonumber(last[2] or 0)
if second < last_second or (second == last_second and low <= last_low) then
    second, low = last_second, last_low + 1
    if low == 4294967296 then
        second, low = second + 1, 0
    end
end
redis.call('HSET', KEYS[1], 'second', second, 'low', low)
return {second, low}
