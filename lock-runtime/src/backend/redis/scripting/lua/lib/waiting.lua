-- Fragment waiting: the waiting list of a lock, and the reservation of the lock for the first holder on it.
--
-- Offers: put(waiting, holder, now, trip), which adds the holder at the end of the list if it is not on it; returns an
--         error if that is refused
--         | first_of(waiting), which returns the first holder or false, the time in µs until which the lock is left to
--         clients off the list, and true if the holder is far; or nil and the error if that is refused
--         | reserve_first(lock, waiting, channel, first, far, but), which returns the ms of the reservation, and false
--         if its message was refused; or false if the list has no holder but `but`, or the lock cannot be reserved
--         | LIFE in ms
--         | LEFT, the member with that time
--         | LEFT_AT_MOST, how many µs it is ahead at most
-- After: digits, publish, failed
-- Why: A reservation is a short hold of the lock, so it keeps out every client, whether or not it knows the list. It
--      does not grant the lock: its holder believes only the reply to its own request, which finds the holder's field.
--      It is long enough for a process that is slow, and lasts a second for a process to which four round trips take
--      longer than the shortest reservation: otherwise a process that is always too late would never acquire the lock.
--      If no listener receives the message, the holder is passed over: its process is gone, or will connect again and
--      ask then. A key that is not a list counts as an empty list. A missing right is an error before the first write,
--      and the caller then goes on without a list. Scores are the times of arrival in µs, plus half a microsecond for a
--      holder that is far. The score of LEFT is negative, so LEFT is always the first member. Holders on the list ask
--      again within LIFE. With LT, a holder keeps the earlier of its times: after a clock was set back, newcomers get
--      earlier times, and the old holders get them too when they ask again. The message goes to the process of the
--      holder, whose channel ends in the first part of the holder's id, which others may know.

local LIFE, LEFT, LEFT_AT_MOST, SHORTEST, LONGEST = '5000', 'left to others', 250000, 100, 1000

local function put(waiting, holder, now, trip)
  local far = (tonumber(trip) or 0) * 4 > SHORTEST * 1000
  local added = redis.pcall('ZADD', waiting, 'LT', digits(now) .. (far and '.5' or ''), holder)
  redis.pcall('PEXPIRE', waiting, LIFE)
  return failed(added) and not wrong_type(added) and added or nil
end

local function first_of(waiting)
  local list = redis.pcall('ZRANGE', waiting, 0, 1, 'WITHSCORES')
  if failed(list) then
    return nil, not wrong_type(list) and list or nil
  end
  local left_until, first = false, 1
  if list[2] and tonumber(list[2]) < 0 then
    left_until, first = -tonumber(list[2]), 3
  end
  return list[first] or false, left_until, list[first] and tonumber(list[first + 1]) % 1 ~= 0
end

local function reserve_first(lock, waiting, channel, first, far, but)
  for _ = 1, 8 do
    if not first or first == but or redis.pcall('ZREM', waiting, first) ~= 1 then
      return false
    end
    local ms = far and LONGEST or SHORTEST
    redis.call('HSET', lock, first, 1)
    if redis.pcall('PEXPIRE', lock, digits(ms)) ~= 1 then
      redis.call('HDEL', lock, first)
      return false
    end
    local receivers = published(channel .. ':' .. string.sub(first, 1, 8), '0')
    if receivers ~= 0 then
      return ms, receivers
    end
    redis.call('HDEL', lock, first)
    local next_one, _, next_is_far = first_of(waiting)
    first, far = next_one, next_is_far
  end
  return false
end

