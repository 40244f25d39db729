-- Fragment waiting: the waiting list of a lock, and the reservation of the lock for the first holder on it.
--
-- Offers: put(waiting, holder, now), which adds the holder at the end of the list if it is not on it; returns an error if
--         that is refused
--         | first_of(waiting), which returns the first holder or false, and the time in µs until which the lock is left
--         to clients off the list; or nil and the error if that is refused
--         | reserve_first(lock, waiting, channel, first, now, but, token, run_id), which returns whether the lock is
--         reserved, and then the number of receivers of the message, or false if the message was refused. The lock is
--         not reserved if the list has no holder but `but`, or if a write is refused
--         | RESERVED, how many ms a reservation lasts
--         | LIFE in ms
--         | LEFT, the member with that time
--         | LEFT_AT_MOST, how many µs it is ahead at most
-- After: digits, publish, failed, listeners
-- Why: A reservation is a short hold of the lock, so it keeps out every client, whether or not it knows the list. It is
--      long enough for a process that is slow or far, or that takes it for a grant and then asks for its lease. Its
--      message names the holder by a hash, because others may read the channel, and the end by the same clock reading
--      that the expiry is set from. A process that knows by which clock its own request was answered can tell from that
--      whether the reservation still lasts. With `token` and `run_id`, the message is enough for the grant; without
--      them it is a hint. Old messages and hints look alike to a process that only asks again.
--      If nobody listens, the holder is passed over: its process is gone, or will connect again and ask then. This is
--      asked before a message is sent that may be believed: replicas pass messages on to listeners that this server
--      does not count, and such a message cannot be taken back. A key that is not a list counts as an empty list. A
--      missing right is an error before the first write, and the caller then goes on without a list. Scores are the
--      times of arrival in µs. The score of LEFT is negative, so LEFT is always the first member. Holders on the list
--      ask again within LIFE. With LT, a holder keeps the earlier of its times: after a clock was set back, newcomers
--      get earlier times, and the old holders get them too when they ask again. The message goes to the process of the
--      holder, whose channel ends in the first part of the holder's id, which others may know.

local LIFE, LEFT, LEFT_AT_MOST, RESERVED = '5000', 'left to others', 250000, 1000

local function put(waiting, holder, now)
  local added = redis.pcall('ZADD', waiting, 'LT', digits(now), holder)
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
  return list[first] or false, left_until
end

local function reserve_first(lock, waiting, channel, first, now, but, token, run_id)
  local ends = digits(math.floor(now / 1000) + RESERVED)
  for _ = 1, 8 do
    if not first or first == but or redis.pcall('ZREM', waiting, first) ~= 1 then
      return false
    end
    local own, message = channel .. ':' .. string.sub(first, 1, 8), '0'
    local hears = listeners(own)
    if hears ~= 0 then
      redis.call('HSET', lock, first, 1)
      if redis.pcall('PEXPIREAT', lock, ends) ~= 1 then
        redis.call('HDEL', lock, first)
        return false
      end
      if token and hears > 0 then
        message = string.sub(redis.sha1hex(first), 1, 32) .. ':' .. run_id .. ':' .. ends .. ':' .. token
      end
      local receivers = published(own, message)
      if receivers ~= 0 or hears > 0 then
        return true, receivers
      end
      redis.call('HDEL', lock, first)
    end
    first = first_of(waiting)
  end
  return false
end
