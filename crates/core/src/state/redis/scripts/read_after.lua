-- Reads entries of a log: the number after the last that is not kept, that of the last, then numbers and entries.
-- KEYS: the log. ARGV: the number to begin at, how many entries.
local log = KEYS[1]
local first = redis.call('XRANGE', log, '-', '+', 'COUNT', 1)[1]
if not first then
  if redis.call('EXISTS', log) == 0 then
    return {}
  end
  local info = redis.call('XINFO', 'STREAM', log)
  for at = 1, #info, 2 do
    if info[at] == 'last-generated-id' then
      local last = tonumber(string.match(info[at + 1], '^%d+'))
      return { string.format('%.0f', last + 1), string.format('%.0f', last) }
    end
  end
  return {}
end
local last = redis.call('XREVRANGE', log, '+', '-', 'COUNT', 1)[1]
-- Entries of an older version do not say which came before them.
local before = tonumber(first[2][6] or string.match(first[1], '^%d+') - 1)
local page = { string.format('%.0f', before + 1), string.match(last[1], '^%d+') }
local count = tonumber(ARGV[2])
if count > 0 then
  for _, entry in ipairs(redis.call('XRANGE', log, ARGV[1] .. '-0', '+', 'COUNT', count)) do
    page[#page + 1] = string.match(entry[1], '^%d+')
    page[#page + 1] = entry[2][2]
  end
end
return page
