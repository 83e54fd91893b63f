import type { SessionOwner } from './session-store.ts';

/** This and a session's key make the key of the session's text, or of `REMOVED` in its place, until its idle limit. */
export const SESSION_PREFIX = 'bot-relay:session:';
/** This and a user's id make the key of a sorted set: the user's sessions by their last idle limits, and `ENDED`. */
export const USER_PREFIX = 'bot-relay:user-sessions:';
/** This and a session of the identity provider make the key of such a set, of the sessions that began in it. */
export const PROVIDER_PREFIX = 'bot-relay:provider-sessions:';
/** The channel where the keys of removed sessions are published, separated by spaces. */
export const CHANNEL = 'bot-relay:removed-sessions';
/** The value in place of a removed session: it can't be restored, and an instance that missed the removal can ask. */
export const REMOVED = 'removed';
/** The member of a set that is the mark of when all of its sessions were last ended; its score is `MARK_MS` more. */
export const ENDED = 'ended';
/** Two years in ms: the mark's score is later than any idle limit, so that it is not dropped with expired sessions. */
export const MARK_MS = 63_072_000_000;

/**
 * The script that changes one session in Redis. KEYS: the session. ARGV: the operation, the instance's time in ms, and
 * the operation's own arguments. Times are whole ms, which a Lua number holds exactly. A session expires with its text.
 */
export const SESSION_SCRIPT = `
local name, op, now = KEYS[1], ARGV[1], tonumber(ARGV[2])
local REMOVED = '${REMOVED}'

-- The beginning of a session's text; see session-codec.ts.
local START = '^({"v":1,"idleExpiresAt":)(%d+)'

local text = redis.call('GET', name)

if op == 'set' then
  if text == REMOVED then return 0 end
  redis.call('SET', name, ARGV[3], 'PX', ARGV[4])
  return 1
end

if op == 'extend' then
  if text == REMOVED then return REMOVED end
  local lives = tonumber(ARGV[3]) - now
  local start, limit = string.match(text or '', START)
  if not start or lives <= 0 then return 'missing' end
  local rest = string.sub(text, #start + #limit + 1)
  if tonumber(ARGV[3]) > tonumber(limit) then limit = ARGV[3] end
  -- The clocks of instances may differ: how long the text lives counts, and not what it says.
  redis.call('SET', name, start .. limit .. rest, 'PX', math.max(lives, redis.call('PTTL', name)))
  return tonumber(limit)
end

-- Removes and publishes, or does neither: the first write fails where Redis is read-only, and is undone where
-- publishing is not allowed.
if op == 'remove' then
  if not text or text == REMOVED then return false end
  redis.call('SET', name, REMOVED, 'KEEPTTL')
  local published = redis.pcall('PUBLISH', '${CHANNEL}', ARGV[3])
  if type(published) == 'table' and published.err then
    redis.call('SET', name, text, 'KEEPTTL')
    return published
  end
  return text
end
`;

/**
 * The script for the sessions of a user, or of the provider's session. KEYS: the set. ARGV: the operation, how long a
 * session lives at most, and the operation's own arguments. Times are whole ms by the clock of Redis.
 */
export const SETS_SCRIPT = `
local set, op, longest = KEYS[1], ARGV[1], tonumber(ARGV[2])
local clock = redis.call('TIME')

local now = clock[1] * 1000 + math.floor(clock[2] / 1000)
if op == 'now' then return now end

-- The clocks of instances may differ by so much.
local SKEW = 60000
local function live_for(ms)
  if redis.call('PTTL', set) < ms + SKEW then redis.call('PEXPIRE', set, ms + SKEW) end
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
  local published = #keys > 0 and redis.pcall('PUBLISH', '${CHANNEL}', table.concat(keys, ' '))
  if type(published) == 'table' and published.err then
    if before then redis.call('ZADD', set, before, '${ENDED}') else redis.call('ZREM', set, '${ENDED}') end
    return published
  end
  -- A session that is not in the set yet is stored later, or was lost by the set.
  live_for(longest)
  return keys
end

-- Takes removed sessions out.
for i = 3, #ARGV do redis.call('ZREM', set, ARGV[i]) end
return 0
`;

/** The names of the sets in Redis in which a session of this owner is. */
export function setsOf({ userId, providerSession }: SessionOwner): string[] {
  const sets = [USER_PREFIX + userId];
  if (providerSession !== undefined) sets.push(PROVIDER_PREFIX + providerSession);
  return sets;
}
