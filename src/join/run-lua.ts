import { COMMON, NEWS } from './run-lua-common.ts';

/** How a run ends. Its log stays for a moment for those who read it. */
const FINISH = `
local function finish(id, run, state, keep, remember)
  local conversation, message, name = run.conversation, run.message, run.name
  local is_known = run_of(conversation, name) == id
  -- Whoever was lost may send the message yet, if it comes back: until then nobody else does.
  local is_unsure = run.unsure and run.kept == '' and state ~= 'free'
  if is_known and is_unsure then set_name(conversation, name, '', now + 60000) end
  if run.kept == '' or not is_known then state = 'free' end
  if is_known and state == 'free' and not is_unsure then forget_name(conversation, name) end
  if is_known and state == 'over' then set_name(conversation, name, '', now + remember) end
  if is_known and (state == 'kept' or state == 'broken') then set_name(conversation, name, id, now + keep + remember) end
  local ms = 10000
  if state == 'kept' or state == 'broken' then
    redis.call('HSET', R .. id, 'till', text(now + keep))
    ms = math.max(ms, keep)
  elseif redis.call('GET', M .. message) == id then
    redis.call('DEL', M .. message)
  end
  redis.call('HSET', R .. id, 'state', state)
  redis.call('HDEL', R .. id, 'hold', 'cursor')
  for _, key in ipairs({ R .. id, L .. id }) do redis.call('PEXPIRE', key, text(ms)) end
  -- The same id may have a newer run.
  if redis.call('GET', M .. message) == id then redis.call('PEXPIRE', M .. message, text(ms)) end
  if redis.call('EXISTS', L .. id) == 1 then keep_log(id, now + ms) end
end
`;

/**
 * Claims a name for a run, or tells whose it is. ARGV[1] is empty if the name is only looked for. A run that is there
 * already claims its name once more: it gets it if the run was lost, but not if the name was forgotten. Nobody follows a
 * run whose log is closed, and so nobody ends it if its instance is lost: the next one who asks for it does.
 */
export const ENTER = `${COMMON}${FINISH}
local claims, conversation, message, name, kept = ARGV[1], ARGV[2], ARGV[3], ARGV[4], ARGV[5]
local id, token, request, lease, life, most = ARGV[6], ARGV[7], ARGV[8], ARGV[9], ARGV[10], tonumber(ARGV[11])
local known_for, remember = tonumber(ARGV[12]), tonumber(ARGV[13])
sweep()

-- Whoever carries it may come back within a minute.
local function is_lost(run)
  return run[1] == 'live' and run[2] and tonumber(run[3]) < now - 60000
end

local known = run_of(conversation, name)
if known == '' then return { 'over' } end
if known and known ~= id then
  local run = redis.call('HMGET', R .. known, 'state', 'closed', 'lease', 'message', 'kept')
  if is_lost(run) then
    local its = { conversation = conversation, message = run[4], name = name, kept = run[5], unsure = '1' }
    finish(known, its, 'over', 0, remember)
    return { 'over' }
  end
end
if known then return told(known) end
if claims == '' then return { 'unknown' } end
if redis.call('EXISTS', R .. id) == 1 then return { 'forgotten' } end
while redis.call('ZCARD', NAMES) >= most do
  local old, its_name = string.match(redis.call('ZRANGE', NAMES, 0, 0)[1], '^(%S+) (%S+)$')
  forget_name(old, its_name)
end
set_name(conversation, name, id, now + known_for)
redis.call('SET', M .. message, id, 'PX', text(known_for))
redis.call('HSET', R .. id, 'token', token, 'lease', text(now + lease), 'state', 'live', 'first', 0, 'end', 0,
  'request', request, 'conversation', conversation, 'message', message, 'name', name, 'kept', kept)
redis.call('PEXPIRE', R .. id, life)
return { 'claimed' }
`;

/** Tells the newest run of a message id. */
export const NEWEST = `${COMMON}
local id = redis.call('GET', M .. ARGV[1])
local run = id and redis.call('HMGET', R .. id, 'conversation', 'name')
local is_known = run and run[1] and run_of(run[1], run[2]) == id
return is_known and told(id) or { 'over' }
`;

/** Forgets the names of a conversation, except one. There may be many: what is left of them is dropped bit by bit. */
export const FORGET = `${COMMON}
local conversation, except = ARGV[1], ARGV[2]
local names = C .. conversation
local ttl = redis.call('PTTL', names)
if ttl <= 0 then return end
local old = conversation .. ' ' .. clock[1] .. '.' .. clock[2]
local kept = redis.call('HGET', names, except)
redis.call('RENAME', names, F .. old)
redis.call('ZADD', FORGOTTEN, text(now + ttl), old)
expire_with_last(FORGOTTEN)
if kept then
  redis.call('HDEL', F .. old, except)
  redis.call('HSET', names, except, kept)
  redis.call('PEXPIRE', names, ttl)
end
sweep()
`;

/**
 * Writes what has come of runs, extends their leases and ends them. A batch that was written already, whose answer was
 * lost, is not written again; one that leaves a gap closes the log. From ARGV[7] on, each is one batch: its values with
 * a space between, since an argument costs the relay more than the bytes in it.
 */
export const FLUSH = `${COMMON}${FINISH}
local lease, most, most_in_all, life = tonumber(ARGV[1]), tonumber(ARGV[2]), tonumber(ARGV[3]), tonumber(ARGV[4])
local keep, remember, answers, news = tonumber(ARGV[5]), tonumber(ARGV[6]), {}, {}
local FIELDS = { 'token', 'state', 'end', 'closed', 'followed', 'seen', 'renewed', 'conversation', 'message', 'name', 'kept',
  'unsure' }
sweep()

local function close(id, run)
  close_log(id)
  run.closed = '1'
end

-- A run makes room if it has ended, or if nobody has taken it over for a minute.
local function is_lost(id)
  local run = redis.call('HMGET', R .. id, 'state', 'lease')
  return run[1] ~= 'live' or tonumber(run[2]) < now - 60000
end

local function trim(id, bytes)
  if bytes <= most then return bytes end
  local from = nil
  while bytes > most do
    local oldest = redis.call('XRANGE', L .. id, from and ('(' .. from) or '-', '+', 'COUNT', 1)[1]
    if not oldest then break end
    from, bytes = oldest[1], bytes - #oldest[2][6] - 100
  end
  local first = redis.call('XRANGE', L .. id, '(' .. from, '+', 'COUNT', 1)[1]
  if not first or not first[2][6] then return nil end
  redis.call('XTRIM', L .. id, 'MINID', first[1])
  redis.call('HSET', R .. id, 'first', first[2][2])
  return bytes
end

-- Keys live for long and batches are frequent, so a batch extends their time to live only every 30 seconds.
local function renew(id, run, fields)
  if now - tonumber(run.renewed or '0') < 30000 then return end
  fields[#fields + 1], fields[#fields + 2] = 'renewed', text(now)
  redis.call('PEXPIRE', R .. id, text(life))
  redis.call('PEXPIRE', L .. id, text(life))
  keep_log(id, now + life)
end

local function add(id, run, offset, length, inside, data, fields)
  local last = tonumber(run['end'])
  if last == offset + length then return end
  if last ~= offset then return close(id, run) end
  redis.call('XADD', L .. id, '*', 'o', offset, 'i', inside, 'd', data)
  fields[#fields + 1], fields[#fields + 2] = 'end', offset + length
  local before = tonumber(redis.call('HGET', SIZES, id) or '0')
  local bytes = trim(id, before + #data + 100)
  if not bytes then return close(id, run) end
  local all = resize(id, bytes, before)
  renew(id, run, fields)
  while all > most_in_all do
    local oldest = redis.call('ZRANGE', LOGS, 0, 0)[1]
    if oldest == id or not is_lost(oldest) then return close(id, run) end
    close_log(oldest)
    all = resize(id, bytes)
  end
end

local BATCH = '^' .. string.rep('(%S*) ', 10) .. '(%S*)$'
for n = 7, #ARGV do
  local id, token, at, bytes, inside, data, head, hold, cursor, last, state = string.match(ARGV[n], BATCH)
  local offset, length = tonumber(at), tonumber(bytes)
  local run = {}
  for i, value in ipairs(redis.call('HMGET', R .. id, unpack(FIELDS))) do run[FIELDS[i]] = value or nil end
  if not run.state then
    answers[#answers + 1] = { 'gone', 0, 0 }
  elseif run.token ~= token or run.state ~= 'live' then
    answers[#answers + 1] = { 'lost', 0, 0 }
  else
    local fields = { 'lease', text(state == 'given' and now or now + lease) }
    local function set(name, value) fields[#fields + 1], fields[#fields + 2] = name, value end
    if length == 0 or run.closed then redis.call('PEXPIRE', R .. id, text(life)) end
    if head ~= '' then set('head', head) end
    if offset < 0 and not run.closed then close(id, run) end
    if length > 0 and not run.closed then add(id, run, offset, length, inside, data, fields) end
    if hold ~= '' and not run.closed then
      set('hold', hold)
      set('since', text(now))
    end
    if cursor ~= '' and not run.closed then set('cursor', cursor) end
    redis.call('HSET', R .. id, unpack(fields))
    if last ~= '' then redis.call('XADD', L .. id, '*', 'e', last) end
    if state ~= '' and state ~= 'given' then finish(id, run, run.closed and state ~= 'free' and 'over' or state, keep, remember) end
    local followed = tonumber(run.followed or '0') - now
    if followed > 0 and (length > 0 or head ~= '' or last ~= '' or state ~= '') then news[#news + 1] = id end
    answers[#answers + 1] = { run.closed and 'closed' or 'written', math.max(0, followed), tonumber(run.seen or '0') }
  end
end
if #news > 0 then redis.call('PUBLISH', '${NEWS}', table.concat(news, ' ')) end
return answers
`;

/** Reads what has come of a run since an entry, and tells that somebody follows it. */
export const READ = `${COMMON}
local id, after, count, seen, follow = ARGV[1], ARGV[2], ARGV[3], tonumber(ARGV[4]), tonumber(ARGV[5])
local run = redis.call('HMGET', R .. id, 'state', 'lease', 'end', 'first', ARGV[6], 'followed', 'seen')
if not run[1] then return { 'gone' } end
if run[1] == 'live' then
  redis.call('HSET', R .. id, 'followed', text(now + follow), 'seen', math.max(seen, tonumber(run[7] or '0')))
  if tonumber(run[6] or '0') <= now then redis.call('PUBLISH', '${NEWS}', '?' .. id) end
end
local entries = redis.call('XRANGE', L .. id, after == '' and '-' or ('(' .. after), '+', 'COUNT', count)
return { run[1], tonumber(run[2]) - now, tonumber(run[3]), tonumber(run[4]), run[5] or '', entries }
`;

/** Tells the one who carries a run that a reader's session has ended. */
export const SESSION_ENDED = `${COMMON}
redis.call('PUBLISH', '${NEWS}', '!' .. ARGV[1])
`;

/** Takes a run over whose lease has ended. */
export const TAKE_OVER = `${COMMON}
local NAME = { 'conversation', 'message', 'name', 'kept' }
local id, token, lease = ARGV[1], ARGV[2], tonumber(ARGV[3])
local run = redis.call('HMGET', R .. id, 'state', 'lease', 'end', 'hold', 'cursor', 'since', unpack(NAME))
if run[1] ~= 'live' or tonumber(run[2]) > now then return { 'kept' } end
redis.call('HSET', R .. id, 'token', token, 'lease', text(now + lease))
if not run[5] then redis.call('HSET', R .. id, 'unsure', '1') end
return { 'taken', run[3], run[4] or '', run[5] or '', now - tonumber(run[6] or now), unpack(run, 7, 10) }
`;
