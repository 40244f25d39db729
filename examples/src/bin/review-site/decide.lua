-- Decides on an order, and puts it on the stream.
-- KEYS: the stock, the set of buyers, the stream of orders. ARGV: the user, the id of the order.
-- Returns 'ordered', 'twice' or 'sold out'.
-- Why a script: nobody comes between the looks and the order, and a crash leaves all of it or nothing.
if redis.call('SISMEMBER', KEYS[2], ARGV[1]) == 1 then
    return 'twice'
end
if tonumber(redis.call('GET', KEYS[1]) or '0') < 1 then
    return 'sold out'
end
redis.call('DECR', KEYS[1])
redis.call('SADD', KEYS[2], ARGV[1])
redis.call('XADD', KEYS[3], '*', 'user', ARGV[1], 'id', ARGV[2])
return 'ordered'
