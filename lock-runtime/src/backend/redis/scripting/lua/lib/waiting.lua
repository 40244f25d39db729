-- Fragment waiting: the list of the holders that wait for a lock, and the reservation of the lock for the first of them.
--
-- Offers: put(waiting, holder, now, trip), at the end of the list, if it is not there; an error if that is refused
--         | first_of(waiting), the first holder or false, the time in µs until which the lock is left to others, and
--         whether the holder is far; or nil and the error if that is refused | reserve_first(lock, waiting, channel,
--         first, far, but), for how many ms, and false if its message was refused; or false if there is nobody on the
--         list but `but`, or it cannot be reserved | LIFE in ms | LEFT, the member with that time | LEFT_AT_MOST, how many µs it is ahead
-- After: digits, publish, failed
-- Why: A reservation is a short hold of the lock, so it keeps out every client, whatever that knows of the list. It
--      gives its holder nothing: the holder believes only the answer to its own request, which finds its field. It is
--      long enough for a process that is late, and lasts a second for one to which four trips take longer than the
--      shortest reservation: a process that is always too late would never have a turn. A holder whose message nobody
--      hears is passed over: its process is gone, or is about to connect again and asks then. A key that is no list is taken
--      for an empty one; a right that is missing is an error, before anything is written, and the caller goes on
--      without a list. Scores are the times of arrival in µs, with half a microsecond more for who is far; that of LEFT
--      is negative, so LEFT is always the first. Holders on the list ask again within LIFE, and then come before those
--      with a later time: a clock that was set back gives newcomers earlier times than theirs. A message goes to the
--      process of a holder, whose channel ends in the first part of its id, which others may know.

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
    local heard = published(channel .. ':' .. string.sub(first, 1, 8), '0')
    if heard ~= 0 then
      return ms, heard
    end
    redis.call('HDEL', lock, first)
    local next_one, _, next_is_far = first_of(waiting)
    first, far = next_one, next_is_far
  end
  return false
end

