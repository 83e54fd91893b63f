import { randomUUID } from 'node:crypto';
import type { Redis } from '../storage/redis.ts';
import {
  type EndpointBudgets,
  limitFor,
  MAX_FUTURE_SLOTS,
  type Rate,
  type Reservation,
  type StartAnswer,
  TRIAL_MS,
  TRIAL_POLL_MS,
} from './budgets.ts';

/**
 * The first key is a sorted set of tickets by the time of their slot. The second has the end of the endpoint's pause,
 * the time at which Redis's clock was last read, and the trial. During an update, instances of the previous version use
 * the same keys: they know the first two fields, and the first holder of a ticket.
 */
const keysOf = (endpoint: string) => [
  `bot-relay:{budget:${endpoint}}:slots`,
  `bot-relay:{budget:${endpoint}}:state`,
];

const US_PER_MS = 1000;
/** How long nothing starts after Redis was lost, at most, in ms. For longer windows, Redis should persist its data. */
const MAX_HOLD_MS = 5_000;

/**
 * Budgets as exact sliding windows in Redis, shared by all instances: the algorithm of `memory-budgets.ts` on Redis's
 * own clock, since the clocks of the instances may differ. Every call is one round trip. If the clock is set back,
 * nothing changes; if it is set forward, that counts as time that has passed.
 * After Redis was lost it may have forgotten everything, so that nothing starts until a window is over.
 * @throws Problem `session_store_unavailable` from each method if Redis is out of reach
 */
export function redisBudgets(redis: Redis, rate: Rate): EndpointBudgets {
  const run = redis.script(SCRIPT);
  const window = String(rate.windowMs * US_PER_MS);
  const trial = String((rate.trialMs ?? TRIAL_MS) * US_PER_MS);
  function call(endpoint: string, ...args: string[]) {
    const heldUntil = (redis.backAt() ?? Number.NEGATIVE_INFINITY) + Math.min(rate.windowMs, MAX_HOLD_MS);
    const hold = String(Math.ceil(Math.max(0, heldUntil - performance.now()) * US_PER_MS));
    return run(keysOf(endpoint), [String(limitFor(rate, endpoint)), window, hold, trial, ...args]);
  }
  return {
    async reserve({ endpoint, holders, maxWaitMs, maxFutureSlots = MAX_FUTURE_SLOTS, isEarly }) {
      const ticket = [...holders, randomUUID()].join(' ');
      const maxWait = String(Math.round(maxWaitMs * US_PER_MS));
      const early = isEarly ? 'early' : '';
      const reply = call(endpoint, 'reserve', ticket, maxWait, String(maxFutureSlots), early);
      // After an error, Redis may still grant the slot, and others would wait for the trial of this message.
      reply.catch(() => call(endpoint, 'cancel', ticket).catch(() => {}));
      const [wait, judged, onTrial, state, remaining, reset, fullTicket] = (await reply) as Reply;
      const start = startOf([wait, judged, onTrial]);
      return { ...start, state, ticket: fullTicket, remaining, resetMs: reset / US_PER_MS };
    },
    async start(endpoint, ticket) {
      return startOf((await call(endpoint, 'start', ticket)) as StartReply);
    },
    async judged(endpoint, ticket, accepted) {
      await call(endpoint, 'judged', ticket, accepted ? 'accepted' : '');
    },
    async sent(endpoint, ticket) {
      await call(endpoint, 'sent', ticket);
    },
    async cancel(endpoint, ticket) {
      await call(endpoint, 'cancel', ticket);
    },
    async penalize(endpoint, ticket, { believedMs, askedMs, withoutSlot }) {
      const [believed = '', asked = ''] = [believedMs, askedMs].map((ms) =>
        String(Math.round(ms * US_PER_MS)),
      );
      await call(endpoint, 'penalize', ticket, believed, asked, withoutSlot ? 'without slot' : '');
    },
  };
}

type StartReply = [wait: number, judged: number, onTrial: number];
type Reply = [...StartReply, Reservation['state'], remaining: number, reset: number, ticket: string];

function startOf([wait, judged, onTrial]: StartReply): StartAnswer {
  return { waitMs: wait / US_PER_MS, trialLeftMs: judged / US_PER_MS, onTrial: onTrial === 1 };
}

/**
 * Times are whole µs, which a Lua number and a score hold exactly. A ticket has three parts, with spaces between: the
 * time of the request in 16 digits, by which tickets of the same slot are sorted; its holders; and a unique id.
 * Redis does nothing else while the script runs: the cost of each branch is at most linear in the number of slots.
 */
const SCRIPT = `
local limit, window, hold, trial_time = tonumber(ARGV[1]), tonumber(ARGV[2]), tonumber(ARGV[3]), tonumber(ARGV[4])
local op, ticket = ARGV[5], ARGV[6]
local state = redis.call('HMGET', KEYS[2], 'paused-until', 'seen-at', 'asked-until', 'trial', 'trial-until')
local paused_until, seen_at, asked_until = tonumber(state[1] or '0'), tonumber(state[2] or '0'), tonumber(state[3] or '0')
local trial, trial_until = state[4] or '', tonumber(state[5] or '0')
-- An instance that got no answer to 'reserve' knows its ticket only without the time.
local own_trial = trial ~= '' and (string.sub(ticket, 1, #trial) == trial or string.sub(trial, 18) == ticket)
if own_trial and (op == 'cancel' or op == 'judged' or op == 'penalize') then
  trial, trial_until = '', 0
  redis.call('HDEL', KEYS[2], 'trial', 'trial-until')
end
if op == 'cancel' then return redis.call('ZREM', KEYS[1], ticket) end

local clock = redis.call('TIME')
local now = clock[1] * 1000000 + clock[2]

-- If a later refusal has started a new pause, an older acceptance must not end it.
if op == 'judged' then
  if own_trial and ARGV[7] == 'accepted' and paused_until <= now then redis.call('HDEL', KEYS[2], 'asked-until') end
  return 0
end

local function keep()
  local last = tonumber(redis.call('ZRANGE', KEYS[1], -1, -1, 'WITHSCORES')[2] or now)
  local function set(...) redis.call('HSET', KEYS[2], ...) end
  set('paused-until', string.format('%.0f', paused_until), 'seen-at', string.format('%.0f', now))
  if state[3] or asked_until > 0 then set('asked-until', string.format('%.0f', asked_until)) end
  if state[4] or trial ~= '' then set('trial', trial, 'trial-until', string.format('%.0f', trial_until)) end
  redis.call('PEXPIRE', KEYS[1], math.ceil((math.max(last, now) + window - now) / 1000))
  local over = math.max(last + window, now + window, paused_until, asked_until)
  redis.call('PEXPIRE', KEYS[2], math.ceil((over - now) / 1000))
end

-- The clock was set back: move all times with it, so that nothing is forgotten and nothing lasts longer.
if now < seen_at then
  local back = seen_at - now
  local stored = redis.call('ZRANGE', KEYS[1], 0, -1, 'WITHSCORES')
  for i = 1, #stored, 2 do redis.call('ZADD', KEYS[1], tonumber(stored[i + 1]) - back, stored[i]) end
  paused_until, asked_until = math.max(0, paused_until - back), math.max(0, asked_until - back)
  trial_until = math.max(0, trial_until - back)
  keep()
end
redis.call('ZREMRANGEBYSCORE', KEYS[1], '-inf', now - window)

-- How long the trial of another message may still last.
local judged = own_trial and 0 or math.max(0, trial_until - now)
local earliest = math.max(now + hold, paused_until, judged > 0 and now + ${TRIAL_POLL_MS * US_PER_MS} or 0)

-- The answer for a message with this slot; it goes on trial if it starts during a pause that the service asked for.
local function start_at(slot)
  local on_trial = slot <= now and asked_until > now
  if on_trial then trial, trial_until = ticket, math.min(now + trial_time, asked_until) end
  keep()
  return slot - now, on_trial and 0 or judged, on_trial and 1 or 0
end

if op == 'reserve' then
  local max_wait, share = tonumber(ARGV[7]), tonumber(ARGV[8])
  local holders = {}
  for holder in string.gmatch(ticket, '%S+ ') do holders[#holders + 1] = { name = ' ' .. holder, ahead = 0 } end
  ticket = string.format('%016.0f ', now) .. ticket
  local times = {}
  local stored = redis.call('ZRANGE', KEYS[1], 0, -1, 'WITHSCORES')
  for i = 1, #stored, 2 do
    local at = tonumber(stored[i + 1])
    times[#times + 1] = at
    if at > now then
      for _, holder in ipairs(holders) do
        if string.find(stored[i], holder.name, 17, true) then
          holder.ahead, holder.next = holder.ahead + 1, holder.next or at
        end
      end
    end
  end

  -- Whether, with one more slot at this time, any limit + 1 slots in a row span a window. Call it in order of time.
  local place = 1
  local function fits(at)
    while times[place] and times[place] <= at do place = place + 1 end
    local function time_of(i)
      if i == place then return at end
      return times[i < place and i or i - 1]
    end
    for i = math.max(1, place - limit), math.min(place, #times + 1 - limit) do
      if time_of(i + limit) - time_of(i) < window then return false end
    end
    return true
  end
  local function first_slot(from)
    if fits(from) then return from end
    for _, at in ipairs(times) do
      if at + window > from and fits(at + window) then return at + window end
    end
  end

  local slot = first_slot(earliest)
  local function answer(state, wait, judged, on_trial)
    local last = math.max(times[#times] or now - window, state == 'granted' and slot or 0)
    local left = limit - #times - (state == 'granted' and 1 or 0)
    return { wait, judged, on_trial, state, math.max(0, left), math.max(0, last + window - now), ticket }
  end
  local is_spare = asked_until <= now and (#times + 1) * 2 <= limit
  if slot - now > max_wait or (ARGV[9] == 'early' and not is_spare) then return answer('refused', slot - now, judged, 0) end
  local next_own = 0
  for _, holder in ipairs(holders) do
    if holder.ahead >= share then next_own = math.max(next_own, holder.next) end
  end
  if slot > now and next_own > 0 then return answer('share_taken', next_own - now, judged, 0) end
  redis.call('ZADD', KEYS[1], slot, ticket)
  return answer('granted', start_at(slot))
end

if op == 'sent' then
  redis.call('ZADD', KEYS[1], now, ticket)
  keep()
  return 0
end

-- Ignore future slots: their messages call 'start' themselves, and then move behind this one if needed.
local own = tonumber(redis.call('ZSCORE', KEYS[1], ticket) or '0')
if ARGV[9] ~= 'without slot' then redis.call('ZREM', KEYS[1], ticket) end
local recent = redis.call('ZREVRANGEBYSCORE', KEYS[1], now, '-inf', 'WITHSCORES', 'LIMIT', 0, limit)
local behind = {}
for i = #recent, 2, -2 do behind[#behind + 1] = tonumber(recent[i]) end

-- Sets the first slot from this time on that is behind all of these. Call it in order of time.
local function place_behind(name, from)
  local slot = math.max(from, (behind[#behind + 1 - limit] or -window) + window)
  behind[#behind + 1] = slot
  redis.call('ZADD', KEYS[1], slot, name)
  return slot
end

if op == 'start' then
  return { start_at(place_behind(ticket, math.max(earliest, own))) }
end

if op == 'penalize' then
  paused_until = math.max(paused_until, now + tonumber(ARGV[7]))
  asked_until = math.max(asked_until, now + tonumber(ARGV[8]))
  local ahead = redis.call('ZRANGEBYSCORE', KEYS[1], '(' .. string.format('%.0f', now), '+inf', 'WITHSCORES')
  if ARGV[9] ~= 'without slot' then place_behind(ticket, paused_until) end
  for i = 1, #ahead, 2 do place_behind(ahead[i], math.max(paused_until, tonumber(ahead[i + 1]))) end
  keep()
  return 0
end
`;
