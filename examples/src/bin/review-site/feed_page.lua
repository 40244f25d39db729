-- Reads a page of a feed.
-- KEYS[1]: the sorted set. ARGV: time and id of the entry that was seen last, and the length of the page.
-- Returns ids and times in turn, the latest first.
-- Why a script: between a look for the place and a look at what follows it, new entries would move everything.
local time, seen, many = tonumber(ARGV[1]), ARGV[2], tonumber(ARGV[3])
local page = {}
-- Begins at the first entry of that time, and passes those that were seen. (The entry itself may be gone.)
local at = redis.call('ZCOUNT', KEYS[1], '(' .. ARGV[1], '+inf')
while #page < many do
    local found = redis.call('ZRANGE', KEYS[1], at, at + many - 1, 'REV', 'WITHSCORES')
    if #found == 0 then
        break
    end
    for i = 1, #found, 2 do
        local is_later = tonumber(found[i + 1]) < time or found[i] < seen
        if is_later and #page < many then
            page[#page + 1] = {found[i], found[i + 1]}
        end
    end
    at = at + many
end
return page
