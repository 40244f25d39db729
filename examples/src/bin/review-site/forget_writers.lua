-- Removes the names of writers that have not asked for an hour and have no orders.
-- KEYS[1]: the stream. ARGV[1]: the group.
-- Why a script: a writer that took an order between the look and the removal would lose it.
for _, writer in ipairs(redis.call('XINFO', 'CONSUMERS', KEYS[1], ARGV[1])) do
    local is = {}
    for i = 1, #writer, 2 do
        is[writer[i]] = writer[i + 1]
    end
    if is.pending == 0 and is.idle > 3600000 then
        redis.call('XGROUP', 'DELCONSUMER', KEYS[1], ARGV[1], is.name)
    end
end
