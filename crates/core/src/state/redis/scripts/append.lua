-- Puts an entry at the end of a log, and drops what there is no room for.
-- KEYS: the log. ARGV: the entry, how many entries, how many bytes, the life in milliseconds.
local log = KEYS[1]
local before
local total = 0
local last = redis.call('XREVRANGE', log, '+', '-', 'COUNT', 1)[1]
if last then
  before = tonumber(string.match(last[1], '^%d+'))
  total = tonumber(last[2][4])
elseif redis.call('EXISTS', log) == 1 then
  -- Everything was trimmed; numbers go on.
  local info = redis.call('XINFO', 'STREAM', log)
  for at = 1, #info, 2 do
    if info[at] == 'last-generated-id' then
      before = tonumber(string.match(info[at + 1], '^%d+'))
    end
  end
end
-- The time, so that no number is given twice even if the log is an older one that was brought back.
local now = redis.call('TIME')
local number = math.max((before or 0) + 1, tonumber(now[1]) * 1000000 + tonumber(now[2]))
-- With each entry stands how many bytes the log ever had up to it, and the number of the one before it.
total = total + #ARGV[1]
redis.call('XADD', log, string.format('%.0f-0', number), 'e', ARGV[1], 't', string.format('%.0f', total),
  'p', string.format('%.0f', before or number - 1))
redis.call('XTRIM', log, 'MAXLEN', ARGV[2])
while redis.call('XLEN', log) > 1 do
  local first = redis.call('XRANGE', log, '-', '+', 'COUNT', 1)[1]
  local above = tonumber(first[2][4]) - #first[2][2]
  if total - above <= tonumber(ARGV[3]) then
    break
  end
  redis.call('XDEL', log, first[1])
end
redis.call('PEXPIRE', log, ARGV[4])
return string.format('%.0f', number)
