-- Leases permits of a semaphore to one holder, all of them or none.
--
-- Flags:
-- Uses: digits, range, failed, refusal, fence, admitted, counter, by_request, publish
-- Keys: permits, leases
-- Args: ids, lease_ms, not_after_us, channel, in_all?
-- Returns: {'OK', '', time_us} | {'BUSY', ms until the first lease ends or -1, time_us} | {'STALE', time_us}
--          | {'SHORT', permits in all or ''} | {'FOREIGN', key, why}
-- Why: Each permit has an id of 16 bytes that follows from the holder, so a second copy finds its own ids and takes no
--      further permits. A copy that arrives after not_after is refused. A semaphore that is not set is set to `in_all`,
--      less the leases that have outlived it. So is one whose number a request has set and whose leases are all over.
--      The script first takes back permits whose lease is over, five hundred at most, because the server does nothing
--      else meanwhile; if some of them stay free, it publishes that. Commands that ACLs or types can refuse are called
--      with pcall and undone, so that no permit is lost or made up. SHORT means that waiting would not help.

local permits, leases = KEYS[1], KEYS[2]
local ids, lease, not_after = ARGV[1], tonumber(ARGV[2]), tonumber(ARGV[3])
local wanted = #ids / 16
local MOST_BACK = 500

local in_all = ARGV[5] and tonumber(ARGV[5])
local wrong = out_of_range(lease, 1, LONGEST_LEASE, 'lease') or out_of_range(wanted, 1, 1000, 'permits')
  or ARGV[5] and out_of_range(in_all, 1, 1000000000000, 'permits')
local now, _, late = admitted(wrong, not_after)
if late then
  return late
end
local now_ms = math.floor(now / 1000)

local free, refused = count_at(permits)
if refused then
  return refused
end
if not free and (in_all or 0) < wanted then
  return {'SHORT', in_all and digits(in_all) or ''}
end
local ended = redis.pcall('ZCOUNT', leases, '-inf', digits(now_ms))
local foreign = refusal(ended, leases, 'sorted set')
if foreign then
  return foreign
end
if not free then
  free = in_all - redis.call('ZCARD', leases)
  local set = set_to(permits, in_all, free)
  if failed(set) then
    return set
  end
end

if ended > 0 then
  ended = math.min(ended, MOST_BACK)
  local dead = redis.call('ZRANGE', leases, 0, ended - 1)
  local back = redis.pcall('INCRBY', permits, ended)
  if failed(back) then
    return back
  end
  local gone = redis.pcall('ZREM', leases, unpack(dead))
  if gone ~= ended then
    redis.call('INCRBY', permits, -ended)
    return failed(gone) and gone or redis.error_reply('ERR lock permits could not be taken back')
  end
  free = free + ended
  -- As if the last lease had been given back: the number that a request has set goes with it.
  if in_all and in_all >= wanted and free == all_by_request(permits) and redis.call('ZCARD', leases) == 0 then
    local set = set_to(permits, in_all, in_all)
    if failed(set) then
      return set
    end
    free = in_all
  end
end

local mine = 0
for i = 1, wanted do
  if redis.call('ZSCORE', leases, string.sub(ids, 16 * i - 15, 16 * i)) then
    mine = mine + 1
  end
end
local need = wanted - mine
local reply
if need > free then
  local all = free + redis.call('ZCARD', leases)
  if wanted > all then
    reply = {'SHORT', digits(all)}
  else
    reply = {'BUSY', until_end(leases, 0, now_ms), digits(now)}
  end
else
  if need > 0 then
    local taken = redis.pcall('INCRBY', permits, -need)
    if failed(taken) then
      return taken
    end
    free = free - need
  end
  local ends = {}
  for i = 1, wanted do
    ends[2 * i - 1] = digits(now_ms + lease)
    ends[2 * i] = string.sub(ids, 16 * i - 15, 16 * i)
  end
  local added = redis.pcall('ZADD', leases, 'GT', unpack(ends))
  if failed(added) then
    redis.call('INCRBY', permits, need)
    return added
  end
  reply = {'OK', '', digits(now)}
end
if ended > 0 and free > 0 then
  published(ARGV[4], digits(free))
end
return reply
