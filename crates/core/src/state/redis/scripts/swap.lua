-- Writes a value if the one that is there is the expected one.
-- KEYS: the value. ARGV: what is expected, the new value, its life in milliseconds.
if redis.call('GET', KEYS[1]) == ARGV[1] then
  redis.call('SET', KEYS[1], ARGV[2], 'PX', ARGV[3])
  return 1
end
return 0
