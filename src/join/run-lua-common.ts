/** The channel for the ids of runs of which something has come; with a `?`, of one that somebody begins to follow. */
export const NEWS = 'bot-relay:{runs}:news';
/** The field of their sum, in the hash of how many bytes each log of a part takes. */
export const ALL = 'all';

/** The key of that hash. */
export function sizesOf(part: string): string {
  return part.replace(/names$/, 'sizes');
}

/**
 * What all scripts of runs have in common. KEYS[1] is the key of the names of a part. For all runs of the part: names by
 * when they are forgotten, logs by when they expire, the bytes of each log, and names that were forgotten but are not
 * dropped yet. For a conversation: a hash of names, each with when it is forgotten and its run, if that is kept. For a
 * message id: its newest run. For a run: its fields and its log. Times are ms of Redis's own clock.
 */
export const COMMON = `
local P = string.match(KEYS[1], '^.-}:')
local R, L, C, M = P .. 'run:', P .. 'log:', P .. 'conversation:', P .. 'message:'
local NAMES, LOGS, SIZES = P .. 'names', P .. 'logs', P .. 'sizes'
local FORGOTTEN, F = P .. 'forgotten', P .. 'forgotten:'
local clock = redis.call('TIME')
local now = clock[1] * 1000 + math.floor(clock[2] / 1000)
local function text(number) return string.format('%.0f', number) end

-- A sorted set of times ends with its last one.
local function expire_with_last(key)
  local last = redis.call('ZRANGE', key, -1, -1, 'WITHSCORES')[2]
  redis.call('PEXPIREAT', key, text(last))
  return last
end

local function resize(id, bytes, known)
  local before = known or tonumber(redis.call('HGET', SIZES, id) or '0')
  if bytes > 0 then redis.call('HSET', SIZES, id, bytes) else redis.call('HDEL', SIZES, id) end
  local all = redis.call('HINCRBY', SIZES, '${ALL}', bytes - before)
  if all <= 0 then redis.call('DEL', SIZES) end
  return all
end

local function keep_log(id, till)
  redis.call('ZADD', LOGS, text(till), id)
  redis.call('PEXPIREAT', SIZES, text(expire_with_last(LOGS)))
end

local function drop_log(id)
  redis.call('DEL', L .. id)
  redis.call('ZREM', LOGS, id)
  resize(id, 0)
end

-- Nobody can read a run that goes on from its beginning any more, nor go on with it.
local function close_log(id)
  drop_log(id)
  if redis.call('HGET', R .. id, 'state') ~= 'live' then return end
  redis.call('HSET', R .. id, 'closed', '1', 'first', -1)
  redis.call('HDEL', R .. id, 'hold', 'cursor')
end

-- The run of a name, which is empty once only the name is remembered; nil if the name is not known.
local function run_of(conversation, name)
  local value = redis.call('HGET', C .. conversation, name)
  if not value then return nil end
  local till, id = string.match(value, '^(%d+) (.*)$')
  if tonumber(till) > now then return id end
  redis.call('HDEL', C .. conversation, name)
end

local function set_name(conversation, name, id, till)
  redis.call('HSET', C .. conversation, name, text(till) .. ' ' .. id)
  local last = till
  local values = redis.call('HLEN', C .. conversation) <= 64 and redis.call('HVALS', C .. conversation) or {}
  for _, value in ipairs(values) do last = math.max(last, tonumber(string.match(value, '^%d+'))) end
  if #values == 0 then last = math.max(till, now + redis.call('PTTL', C .. conversation)) end
  redis.call('PEXPIREAT', C .. conversation, text(last))
  redis.call('ZADD', NAMES, text(till), conversation .. ' ' .. name)
  expire_with_last(NAMES)
end

local function forget_run(id)
  local run = redis.call('HMGET', R .. id, 'state', 'message')
  if run[2] and redis.call('GET', M .. run[2]) == id then redis.call('DEL', M .. run[2]) end
  if run[1] == 'live' or not run[1] then return end
  drop_log(id)
  redis.call('DEL', R .. id)
end

local function forget_name(conversation, name)
  local id = run_of(conversation, name) or ''
  redis.call('HDEL', C .. conversation, name)
  redis.call('ZREM', NAMES, conversation .. ' ' .. name)
  forget_run(id)
end

local function drop_forgotten(old)
  local conversation, names = string.match(old, '^%S+'), redis.call('HRANDFIELD', F .. old, 100, 'WITHVALUES')
  for n = 1, #names, 2 do
    redis.call('HDEL', F .. old, names[n])
    local is_claimed = redis.call('HEXISTS', C .. conversation, names[n]) == 1
    if not is_claimed then redis.call('ZREM', NAMES, conversation .. ' ' .. names[n]) end
    forget_run(string.match(names[n + 1], '%S*$'))
  end
  if redis.call('EXISTS', F .. old) == 0 then redis.call('ZREM', FORGOTTEN, old) end
end

local function sweep()
  for _, id in ipairs(redis.call('ZRANGEBYSCORE', LOGS, '-inf', now, 'LIMIT', 0, 100)) do close_log(id) end
  for _, old in ipairs(redis.call('ZRANGEBYSCORE', NAMES, '-inf', now, 'LIMIT', 0, 100)) do
    redis.call('HDEL', C .. string.match(old, '^%S+'), string.match(old, '%S+$'))
    redis.call('ZREM', NAMES, old)
  end
  local forgotten = redis.call('ZRANGE', FORGOTTEN, 0, 0)[1]
  if forgotten then drop_forgotten(forgotten) end
end

-- What is told of a run to one who may join it.
local function told(id)
  local run = redis.call('HMGET', R .. id, 'state', 'first', 'end', 'request', 'till')
  local state = run[1] or 'over'
  local is_gone = redis.call('EXISTS', L .. id) == 0 or tonumber(run[5] or '0') <= now
  if state ~= 'live' and is_gone then state = 'over' end
  return { state, id, run[2], run[3], run[4] }
end
`;
