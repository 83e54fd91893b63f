/**
 * The channel for news of runs: the id of a run of which more is stored; `?` and the id of a run that a follower begins
 * to read; `stop` and a conversation.
 */
export const NEWS = 'bot-relay:{runs}:news';

/** The key of the names of a conversation. All that is stored of it has the same hash tag. */
export function namesKey(conversation: string): string {
  return `bot-relay:{${conversation}}:names`;
}

/**
 * What the scripts have in common. KEYS[1] is a hash of the names of a conversation. Each value has until when the name
 * is known, its state, its run, until when that is leased, and the sealed id of its request. States: `c` claimed, `s`
 * confirmed (it is about to be sent, or was), `k` kept until the time of its lease, `o` over. The field `m` with a
 * message id has the newest name of that. Each run has a hash of fields, and a stream, in which the id of an entry is
 * the offset of its end. The first four arguments are of the run. Times are ms of Redis's own clock.
 */
const COMMON = `
local N, P = KEYS[1], string.match(KEYS[1], '^.-}:')
local R, L = P .. 'run:', P .. 'log:'
local clock = redis.call('TIME')
local now = clock[1] * 1000 + math.floor(clock[2] / 1000)
local function text(number) return string.format('%.0f', number) end

-- Nil if the name is free: no run has it, or that has not been confirmed before its lease ran out.
local function known(key)
  local value = redis.call('HGET', N, key)
  if not value then return nil end
  local till, state, id, lease, request = string.match(value, '^(%d+) (%a) (%S+) (%d+) (%S*)$')
  local left = tonumber(lease) - now
  if tonumber(till) <= now or (state == 'c' and left <= 0) then return nil end
  if state == 'k' and left <= 0 then state = 'o' end
  return { state = state, id = id, left = left, request = request }
end

local function describe(own)
  if not own then return { 'free' } end
  if own.state == 'o' then return { 'over' } end
  return { own.state == 'k' and 'kept' or 'live', own.id, own.request }
end

local function newest(message)
  return string.match(redis.call('HGET', N, 'm ' .. message) or '', '%S+$')
end

-- Stores a name for so many ms. The hash expires with the last of its names.
local function note(run, state, ms, lease, is_newest)
  redis.call('HSET', N, run.key, table.concat({ text(now + ms), state, run.id, text(now + lease), run.request }, ' '))
  local other = run.message ~= '' and newest(run.message)
  if run.message ~= '' and (is_newest or not other or other == run.key) then
    redis.call('HSET', N, 'm ' .. run.message, text(now + ms) .. ' ' .. run.key)
  end
  if redis.call('PTTL', N) < ms then redis.call('PEXPIRE', N, text(ms)) end
end

local function drop(key, message)
  redis.call('HDEL', N, key)
  if message ~= '' and newest(message) == key then redis.call('HDEL', N, 'm ' .. message) end
end

local run = { key = ARGV[1], message = ARGV[2], id = ARGV[3], request = ARGV[4] }
`;

/**
 * Claims a free name, or returns the run that has it. It drops some names that have expired, so that the hash of a long
 * conversation does not grow.
 */
export const CLAIM = `${COMMON}
local ms, lease = tonumber(ARGV[5]), tonumber(ARGV[6])
local some = redis.call('HRANDFIELD', N, 4, 'WITHVALUES')
for n = 1, #some, 2 do
  if tonumber(string.match(some[n + 1], '^%d+')) <= now then redis.call('HDEL', N, some[n]) end
end
local own = known(run.key)
if own then return describe(own) end
note(run, 'c', ms, lease, true)
return { 'claimed' }
`;

/** Returns the run that has a name. */
export const FIND = `${COMMON}
return describe(known(run.key))
`;

/** Returns the newest run of a message id, with its name. */
export const NEWEST = `${COMMON}
local key = newest(run.message)
local answer = describe(key and known(key))
answer[4] = key
return answer
`;

/**
 * The last step before a message is sent. ARGV[7] is for how long it has waited, or empty if no stop drops it. A name
 * that Redis has lost is put back, unless the run has ended meanwhile.
 */
export const CONFIRM = `${COMMON}
local ms, lease, waited = tonumber(ARGV[5]), tonumber(ARGV[6]), tonumber(ARGV[7])
local stopped = waited and tonumber(redis.call('GET', P .. 'stopped') or nil)
if stopped and stopped >= now - waited then return { 'stopped' } end
if run.key == '' then return { 'confirmed' } end
local own = known(run.key)
if own and own.id ~= run.id then return { 'other', own.id, own.request } end
if not own and redis.call('HEXISTS', R .. run.id, 'end') == 1 then return { 'stopped' } end
-- If Redis has lost the name, the id of its request is missing until the next renewal.
run.request = own and own.request or ''
note(run, 's', ms, lease)
return { 'confirmed' }
`;

/** The arguments of `APPEND` behind the four of the run, in their order. */
const APPEND_ARGUMENTS = [
  // The state of the name, how long it is known, its lease, and how long what is stored of the run lives.
  ...(['state', 'ms', 'lease', 'life'] as const),
  // A batch: its offsets, whether it ends inside an event, and its sealed bytes. Without a batch, both offsets are equal.
  ...(['from', 'to', 'inside', 'data'] as const),
  // The sealed head; whether nothing more is stored of the stream; and how many bytes of it are kept.
  ...(['head', 'closing', 'bytes'] as const),
  // What becomes of the name after the run, and its sealed end. Both are empty before that.
  ...(['after', 'last', 'keep', 'remember'] as const),
];

/** The arguments for one call of `APPEND`. */
export function appendArguments(
  run: readonly [key: string, message: string, id: string, request: string],
  values: Readonly<Record<(typeof APPEND_ARGUMENTS)[number], string | number>>,
): string[] {
  return [...run, ...APPEND_ARGUMENTS.map((name) => String(values[name]))];
}

/**
 * Extends the lease of a run, stores a batch of its stream, and its end. A name that Redis has lost is put back. A batch
 * that is stored already, since its answer was lost, is not stored again; one that does not begin where the log ends
 * closes the log.
 */
export const APPEND = `${COMMON}
local ${APPEND_ARGUMENTS.join(', ')} = unpack(ARGV, 5)
ms, lease, bytes, keep, remember = tonumber(ms), tonumber(lease), tonumber(bytes), tonumber(keep), tonumber(remember)
local is_closed = closing ~= ''
local H, E = R .. run.id, L .. run.id

local own = known(run.key)
-- Redis has lost the name of a run that was sent, and another run has claimed it since, which is not sent yet.
local is_first = state == 's' and own and own.state == 'c'
if own and own.id ~= run.id and not is_first then return { 'lost', 0 } end
local stored = redis.call('HMGET', H, 'at', 'closed', 'followed', 'end')
-- The end is stored already: this call is late.
if stored[4] then return { 'stored', 0 } end
local at, was_closed, followed = stored[1] or '0', stored[2], tonumber(stored[3] or '0') - now

if not was_closed and not is_closed and at ~= to then
  if at == from then
    redis.call('XADD', E, to .. '-0', 'o', from, 'i', inside, 'd', data)
    redis.call('XTRIM', E, 'MINID', text(math.max(0, tonumber(to) - bytes)))
    redis.call('HSET', H, 'at', to)
  else
    is_closed = true
  end
end
if is_closed and not was_closed then
  redis.call('UNLINK', E)
  redis.call('HSET', H, 'closed', '1')
end
if head ~= '' then redis.call('HSET', H, 'head', head) end

if last == '' then
  note(run, own and own.state == 's' and 's' or state, ms, lease)
else
  if after == 'kept' and (is_closed or was_closed) then after = 'over' end
  redis.call('HSET', H, 'end', last)
  if after == 'free' then drop(run.key, run.message) end
  if after == 'over' then note(run, 'o', remember, 0) end
  if after == 'kept' then note(run, 'k', keep + remember, keep) end
  life = text(math.max(10000, after == 'kept' and keep or 0))
end
redis.call('PEXPIRE', H, life)
redis.call('PEXPIRE', E, life)
local is_news = from ~= to or head ~= '' or last ~= '' or (is_closed and not was_closed)
if followed > 0 and is_news then redis.call('PUBLISH', '${NEWS}', run.id) end
return { (is_closed or was_closed) and 'closed' or 'stored', math.max(0, followed) }
`;

/** Reads what is stored of a run after an offset, and notes that it is followed. */
export const READ = `${COMMON}
local after, count, ms = ARGV[5], tonumber(ARGV[6]), tonumber(ARGV[7])
local H = R .. run.id
local own = known(run.key)
local state = own and (own.id == run.id and own.state or 'other') or 'gone'
local stored = redis.call('HMGET', H, 'followed', 'closed', 'end', 'head')
if (state == 'c' or state == 's') and not stored[3] then
  redis.call('HSET', H, 'followed', text(now + ms))
  if redis.call('PTTL', H) < ms then redis.call('PEXPIRE', H, ms) end
  if tonumber(stored[1] or '0') <= now then redis.call('PUBLISH', '${NEWS}', '?' .. run.id) end
end
local entries = count > 0 and redis.call('XRANGE', L .. run.id, '(' .. after .. '-0', '+', 'COUNT', count) or {}
return { state, own and own.left or 0, stored[2] or '', stored[3] or '', stored[4] or '', entries }
`;

/** Stops what waits in a conversation; returns how many of its messages with a name wait. */
export const STOP = `${COMMON}
redis.call('SET', P .. 'stopped', text(now), 'PX', ARGV[5])
redis.call('PUBLISH', '${NEWS}', 'stop ' .. string.match(P, '{(.*)}'))
local waiting, all = 0, redis.call('HGETALL', N)
for n = 1, #all, 2 do
  local own = string.sub(all[n], 1, 2) ~= 'm ' and known(all[n])
  if own and own.state == 'c' then waiting = waiting + 1 end
end
return waiting
`;

/** Forgets the names of ended runs, and what is kept of them. */
export const FORGET = `${COMMON}
local all, gone = redis.call('HGETALL', N), {}
for n = 1, #all, 2 do
  local state, id = string.match(all[n + 1], '^%d+ ([ko]) (%S+)')
  if state then
    gone[all[n]] = true
    redis.call('HDEL', N, all[n])
    redis.call('UNLINK', R .. id, L .. id)
  end
end
for n = 1, #all, 2 do
  local key = string.sub(all[n], 1, 2) == 'm ' and string.match(all[n + 1], '%S+$')
  if key and gone[key] then redis.call('HDEL', N, all[n]) end
end
`;
