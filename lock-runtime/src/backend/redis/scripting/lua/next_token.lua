-- Makes a fencing token for a lock that its holder already has.
--
-- Flags:
-- Uses: digits, refusal, fence, admitted
-- Keys: fence
-- Args: not_after_us, counted
-- Returns: {'OK', token, time_us} | {'STALE', time_us} | {'FENCE', key, why}
-- Why: While a slot of a cluster moves, the fence may be at one node and the lock at the other, so that no script can
--      use both keys. After the end of the lease, a new token would be larger than that of the next holder. The date,
--      which is before that end, prevents it.

local now, token, refused = admitted(nil, tonumber(ARGV[1]), KEYS[1], ARGV[2] == '1')
if refused then
  return refused
end
redis.call('SET', KEYS[1], token)
return {'OK', token, digits(now)}
