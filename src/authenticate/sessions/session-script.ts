/** With a session's key: the session's text, or `REMOVED`, until its idle limit. */
export const SESSION_PREFIX = 'bot-relay:session:';
/** With a user's id: a sorted set of the keys of the user's sessions, by their last idle limits, and of `ENDED`. */
export const USER_PREFIX = 'bot-relay:user-sessions:';
/** With a session of the identity provider: such a set of the sessions that began in it. */
export const PROVIDER_PREFIX = 'bot-relay:provider-sessions:';
/** The channel where the keys of removed sessions are published, separated by spaces. */
export const CHANNEL = 'bot-relay:removed-sessions';
/** The value in place of a removed session: nothing can restore it, and an instance that missed the end can ask. */
export const REMOVED = 'removed';
/** The member of a set that is the mark of when all of its sessions were last ended; its score is `MARK_MS` more. */
export const ENDED = 'ended';
/** So much later than any idle limit, in ms, that instances of version 0.2 do not drop the mark: two years. */
export const MARK_MS = 63_072_000_000;

/**
 * The script that changes one session in Redis. KEYS: the session. ARGV: the operation, the instance's time in ms, and
 * the operation's own arguments. Times are whole ms, which a Lua number holds exactly.
 */
export const SESSION_SCRIPT = `
local name, op, now = KEYS[1], ARGV[1], tonumber(ARGV[2])
local REMOVED = '${REMOVED}'

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

local text = redis.call('GET', name)

if op == 'set' then
  if text == REMOVED then return 0 end
  redis.call('SET', name, ARGV[3], 'PX', ARGV[4])
  return 1
end

if op == 'extend' then
  if text == REMOVED then return REMOVED end
  local old, new = text and idle_limit(text), tonumber(ARGV[3])
  if not old or old <= now then return 'missing' end
  if new <= old then return old end
  redis.call('SET', name, with_idle_limit(text, ARGV[3]), 'PX', new - now)
  return new
end

-- Removes and publishes, or does neither: the first write fails where Redis is read-only, and is undone where
-- publishing is not allowed.
if op == 'remove' then
  if not text or text == REMOVED then return false end
  redis.call('SET', name, REMOVED, 'KEEPTTL')
  local told = redis.pcall('PUBLISH', '${CHANNEL}', ARGV[3])
  if type(told) == 'table' and told.err then
    redis.call('SET', name, text, 'KEEPTTL')
    return told
  end
  return text
end
`;

/**
 * The script for the sessions of a user, or of the provider's session. KEYS: the set. ARGV: the operation, how long a
 * session lives at most, and the operation's own arguments. Times are whole ms by the clock of Redis.
 */
export const LIST_SCRIPT = `
local set, op, longest = KEYS[1], ARGV[1], tonumber(ARGV[2])
local clock = redis.call('TIME')

local now = clock[1] * 1000 + math.floor(clock[2] / 1000)
if op == 'now' then return now end

-- What version 0.2 has listed is by the clock of its instance, and it lets a set live as long as the score of its mark.
local SKEW, TOO_LONG = 60000, ${MARK_MS} * 0.75
local function live_for(ms)
  local left = redis.call('PTTL', set)
  if left < ms + SKEW or left > TOO_LONG then redis.call('PEXPIRE', set, ms + SKEW) end
end
local function score(time) return string.format('%.0f', time) end

-- Keeps a session in the set as long as its text lives, unless it began before the mark: then it has ended. It may have
-- been listed for longer already.
if op == 'keep' then
  local key, lives, began = ARGV[3], tonumber(ARGV[4]), tonumber(ARGV[5])
  local mark = redis.call('ZSCORE', set, '${ENDED}')
  if mark and tonumber(mark) - ${MARK_MS} >= began then return 0 end
  redis.call('ZADD', set, 'GT', score(now + lives), key)
  redis.call('ZREMRANGEBYSCORE', set, '-inf', now - SKEW)
  live_for(mark and longest or lives)
  return 1
end

-- Marks all sessions that began until now as ended, and publishes those in the set, or does neither. If the clock has
-- gone back, those that began since then did so after the mark before, and are ended by one that is later.
if op == 'end' then
  local keys = redis.call('ZRANGE', set, 0, -1)
  if keys[#keys] == '${ENDED}' then keys[#keys] = nil end
  local before = redis.call('ZSCORE', set, '${ENDED}')
  local mark = tonumber(ARGV[3]) + ${MARK_MS}
  if before then mark = math.max(mark, tonumber(before) + 1) end
  redis.call('ZADD', set, score(mark), '${ENDED}')
  local told = #keys > 0 and redis.pcall('PUBLISH', '${CHANNEL}', table.concat(keys, ' '))
  if type(told) == 'table' and told.err then
    if before then redis.call('ZADD', set, before, '${ENDED}') else redis.call('ZREM', set, '${ENDED}') end
    return told
  end
  -- A session that is not in the set yet is stored later, or was lost by the set.
  live_for(longest)
  return keys
end

-- Takes removed sessions out.
for i = 3, #ARGV do redis.call('ZREM', set, ARGV[i]) end
return 0
`;
