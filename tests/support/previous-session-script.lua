local name, op, now = KEYS[1], ARGV[1], tonumber(ARGV[2])
local SESSION, CHANNEL, REMOVED = 'bot-relay:session:', 'bot-relay:removed-sessions', 'removed'
local USER, PROVIDER, EMPTIED = 'bot-relay:user-sessions:', 'bot-relay:provider-sessions:', 'bot-relay:emptied:'
-- Clocks of instances differ: a session leaves its sets only when it has expired for all instances.
local SKEW = 60000

local function key_of(session) return string.sub(session, #SESSION + 1) end

-- The beginning of a session's text; see session-codec.ts. Relay 0.1 wrote version 1.
local START = '^({"v":[12],"idleExpiresAt":)(%d+)'
local function idle_limit(text)
  local _, limit = string.match(text, START)
  return tonumber(limit)
end
local function with_idle_limit(text, limit)
  local start, old = string.match(text, START)
  return start .. limit .. string.sub(text, #start + #old + 1)
end

local function sets_of(text)
  local sets = {}
  local ok, data = pcall(cjson.decode, text)
  if not ok or type(data) ~= 'table' then return sets end
  if type(data.sets) == 'table' then return data.sets end
  local id = type(data.user) == 'table' and data.user.id
  if type(id) == 'string' then sets[1] = USER .. id end
  if type(data.providerSession) == 'string' then sets[#sets + 1] = PROVIDER .. data.providerSession end
  return sets
end

local function store(text, ttl)
  redis.call('SET', name, text, 'PX', ttl)
  for _, set in ipairs(sets_of(text)) do
    redis.call('ZADD', set, idle_limit(text) or now, key_of(name))
    redis.call('ZREMRANGEBYSCORE', set, '-inf', now - SKEW)
    local last = redis.call('ZRANGE', set, -1, -1, 'WITHSCORES')[2]
    if last then redis.call('PEXPIRE', set, math.max(1, tonumber(last) - now) + SKEW) end
  end
end

local function text_of(session)
  local text = redis.call('GET', session)
  return text and text ~= REMOVED and text
end

-- Removes and publishes, or does neither: the first write fails where Redis is read-only, and is undone where
-- publishing is not allowed.
local function remove(sessions)
  local keys, texts = {}, {}
  for _, session in ipairs(sessions) do
    local text = text_of(session)
    if text then keys[#keys + 1], texts[#texts + 1] = key_of(session), text end
  end
  if #keys == 0 then return 0 end
  for _, key in ipairs(keys) do redis.call('SET', SESSION .. key, REMOVED, 'KEEPTTL') end
  local told = redis.pcall('PUBLISH', CHANNEL, table.concat(keys, ' '))
  if type(told) == 'table' and told.err then
    for i, key in ipairs(keys) do redis.call('SET', SESSION .. key, texts[i], 'KEEPTTL') end
    return told
  end
  for i, key in ipairs(keys) do
    for _, set in ipairs(sets_of(texts[i])) do redis.call('ZREM', set, key) end
  end
  return #keys
end

if op == 'set' then
  if redis.call('GET', name) ~= REMOVED then store(ARGV[3], ARGV[4]) end
  return 0
end

if op == 'extend' then
  local text = redis.call('GET', name)
  if text == REMOVED then return REMOVED end
  local old, new = text and idle_limit(text), tonumber(ARGV[3])
  if not old or old <= now then return 'missing' end
  if new <= old then return old end
  store(with_idle_limit(text, ARGV[3]), new - now)
  return new
end

if op == 'remove' then
  return remove({ name })
end

if op == 'removed-since' then
  for _, set in ipairs(KEYS) do
    local at = tonumber(redis.call('GET', EMPTIED .. set) or '')
    if at and at >= tonumber(ARGV[3]) then return 1 end
  end
  return 0
end

if op == 'remove-all' then
  -- A sign-in that is under way has no session in the set yet; it asks for this time when it finishes.
  redis.call('SET', EMPTIED .. name, ARGV[2], 'PX', 60000)
  local sessions = {}
  for i, key in ipairs(redis.call('ZRANGE', name, 0, -1)) do sessions[i] = SESSION .. key end
  return remove(sessions)
end
