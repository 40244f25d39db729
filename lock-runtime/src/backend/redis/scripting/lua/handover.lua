-- Makes another holder of the same process the holder, in one step and without a message.
--
-- Flags: allow-oom
-- Uses: listeners, digits, range, time, failed, refusal, fence, lease, reserve_tokens
-- Keys: lock, fence?
-- Args: from, to, lease_ms, channel, counted, spare
-- Returns: {'OK', token or '', last or '', time_us, subscribers or -1 unknown} | {'LOST'} | {'FENCE', key, why}
-- Why: `to` is written only where `from` was, so a second copy finds `to` and a late copy finds neither; the script
--      never acquires a free lock. The lease is set before the holders change, and `to` is written before `from` is
--      deleted, so that the lock has a holder and an expiry at every step. The channel's subscribers are counted,
--      because other processes may wait. The tokens up to `last` are reserved for the process, which may pass the lock
--      to its own callers without a request.

local lock, fence = KEYS[1], KEYS[2]
local from, to, lease, channel = ARGV[1], ARGV[2], tonumber(ARGV[3]), ARGV[4]
local counted, spare = ARGV[5] == '1', tonumber(ARGV[6])

local wrong = out_of_range(lease, 1, LONGEST_LEASE, 'lease') or out_of_range(spare, 0, 2000, 'spare')
if wrong then
  return wrong
end

local replay = redis.pcall('HEXISTS', lock, to)
if failed(replay) then
  return wrong_type(replay) and {'LOST'} or replay
end
if replay == 0 and redis.call('HEXISTS', lock, from) == 0 then
  return {'LOST'}
end

local now = time_us()
local token, refused = next_token(fence, counted and 1 or now, spare)
if refused then
  return refused
end
local last = token
if fence then
  last = reserve_tokens(fence, token, counted and tonumber(token) or now, spare)
end

if replay == 1 then
  extend(lock, lease)
else
  redis.call('PEXPIRE', lock, digits(lease))
  redis.call('HSET', lock, to, 1)
end
redis.call('HDEL', lock, from)

return {'OK', token, last, digits(now), listeners(channel)}
