-- Fragment waiting: the list of the holders that wait for a lock, and the reservation of the lock for the first of them.
--
-- Offers: put(waiting, holder, now), at the end of the list, if it is not there | first_of(waiting), the first holder or
--         false, and the time in µs until which the lock is left to others | reserve(lock, waiting, holder, trip,
--         channel), for how many ms, and whether the holder was told | LIFE in ms | LEFT, the member with that time
-- After: digits, publish
-- Why: A reservation is a short hold of the lock, so it keeps out every client, whatever that knows of the list. It gives
--      its holder nothing: the holder believes only the answer to its own request, which finds its field. A list that
--      cannot be read or written is taken for an empty one. Scores are the times of arrival in µs; that of LEFT is
--      negative, so LEFT is always the first. Holders on the list ask again within LIFE. A message goes to the process
--      of a holder, whose channel ends in the first part of its id, which others may know.

local LIFE, LEFT, SHORTEST, LONGEST = '5000', 'left to others', 10, 1000

local function put(waiting, holder, now)
  redis.pcall('ZADD', waiting, 'NX', digits(now), holder)
  redis.pcall('PEXPIRE', waiting, LIFE)
end

local function first_of(waiting)
  local list = redis.pcall('ZRANGE', waiting, 0, 1, 'WITHSCORES')
  if list[2] and tonumber(list[2]) < 0 then
    return list[3] or false, -tonumber(list[2])
  end
  return list[1] or false
end

local function reserve(lock, waiting, holder, trip, channel)
  local ms = math.max(SHORTEST, math.min(LONGEST, math.ceil((tonumber(trip) or 0) / 250)))
  redis.call('HSET', lock, holder, 1)
  redis.call('PEXPIRE', lock, digits(ms))
  redis.pcall('ZREM', waiting, holder)
  return ms, published(channel .. ':' .. string.sub(holder, 1, 8), '0')
end

