import { TEXT_START } from './session-text.ts';

/** Before a session's key: the session's text, or `REMOVED`, for as long as its idle limit allows. */
export const SESSION_PREFIX = 'bot-relay:session:';
/** Before a user's id: a sorted set of the keys of the user's sessions, by their idle limits. */
export const USER_PREFIX = 'bot-relay:user-sessions:';
/** Where the keys of removed sessions are published, with spaces between. */
export const CHANNEL = 'bot-relay:removed-sessions';
/** Stands where a session was, so that nothing brings it back and whoever missed its end can ask. */
export const REMOVED = 'removed';

/**
 * What changes sessions in Redis. KEYS: the session, or for `remove-user` the user's set. ARGV: the operation, the
 * instance's time in ms, and what the operation takes. Times are whole ms, which a Lua number holds exactly.
 */
export const SESSION_SCRIPT = `
local name, op, now = KEYS[1], ARGV[1], tonumber(ARGV[2])
local SESSION, USER, CHANNEL, REMOVED = '${SESSION_PREFIX}', '${USER_PREFIX}', '${CHANNEL}', '${REMOVED}'
-- Clocks of instances differ: a session is taken from its user's set only when it has run out for all of them.
local SKEW = 60000

local function key_of(session) return string.sub(session, #SESSION + 1) end

local START = '${TEXT_START}'
local function idle_limit(text) return tonumber(string.match(text, '^' .. START .. '(%d+)')) end
local function with_idle_limit(text, limit) return START .. limit .. string.gsub(text, '^' .. START .. '%d+', '') end

local function set_of(text)
  local ok, data = pcall(cjson.decode, text)
  local user = ok and type(data) == 'table' and data.user
  local id = type(user) == 'table' and user.id
  return type(id) == 'string' and USER .. id
end

local function store(text, ttl)
  redis.call('SET', name, text, 'PX', ttl)
  local set = set_of(text)
  if not set then return end
  redis.call('ZADD', set, idle_limit(text) or now, key_of(name))
  redis.call('ZREMRANGEBYSCORE', set, '-inf', now - SKEW)
  local last = redis.call('ZRANGE', set, -1, -1, 'WITHSCORES')[2]
  if last then redis.call('PEXPIRE', set, math.max(1, tonumber(last) - now) + SKEW) end
end

local function text_of(session)
  local text = redis.call('GET', session)
  return text and text ~= REMOVED and text
end

-- Removed and published, or neither: the first write fails where Redis is read-only, and is taken back where
-- nothing may be published.
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
    local set = set_of(texts[i])
    if set then redis.call('ZREM', set, key) end
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

if op == 'remove-user' then
  local sessions = {}
  for i, key in ipairs(redis.call('ZRANGE', name, 0, -1)) do sessions[i] = SESSION .. key end
  return remove(sessions)
end
`;
