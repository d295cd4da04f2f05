-- Adds to a counter, which lives from its first count on.
-- KEYS: the counter. ARGV: how much, the life in milliseconds.
local count = redis.call('INCRBY', KEYS[1], ARGV[1])
if redis.call('PTTL', KEYS[1]) < 0 then
  redis.call('PEXPIRE', KEYS[1], ARGV[2])
end
return count
