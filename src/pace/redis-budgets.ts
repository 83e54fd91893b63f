import { randomUUID } from 'node:crypto';
import type { Redis } from '../storage/redis.ts';
import { type EndpointBudgets, limitFor, MAX_FUTURE_SLOTS, type Rate, type Reservation } from './budgets.ts';

/**
 * The first key is a sorted set of tickets by the time of their slot. The second has the end of the endpoint's pause,
 * and the time at which Redis's clock was last read.
 */
const keysOf = (endpoint: string) => [
  `bot-relay:{budget:${endpoint}}:slots`,
  `bot-relay:{budget:${endpoint}}:state`,
];

const US_PER_MS = 1000;
/**
 * After Redis was lost, nothing starts for a window, but at most for so many ms. For longer windows, Redis must persist
 * its data.
 */
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
  function call(endpoint: string, ...args: string[]) {
    const heldUntil = (redis.backAt() ?? Number.NEGATIVE_INFINITY) + Math.min(rate.windowMs, MAX_HOLD_MS);
    const hold = String(Math.ceil(Math.max(0, heldUntil - performance.now()) * US_PER_MS));
    return run(keysOf(endpoint), [String(limitFor(rate, endpoint)), window, hold, ...args]);
  }
  return {
    async reserve({ endpoint, holders, maxWaitMs, maxFutureSlots = MAX_FUTURE_SLOTS }) {
      const ticket = [...holders, randomUUID()].join(' ');
      const maxWait = String(Math.round(maxWaitMs * US_PER_MS));
      // After an error, Redis may still grant the slot, which then passes unused.
      const reply = await call(endpoint, 'reserve', ticket, maxWait, String(maxFutureSlots));
      const [state, wait, remaining, reset, fullTicket] = reply as ReserveReply;
      const waitMs = wait / US_PER_MS;
      return { state, waitMs, ticket: fullTicket, remaining, resetMs: reset / US_PER_MS };
    },
    async start(endpoint, ticket) {
      return ((await call(endpoint, 'start', ticket)) as number) / US_PER_MS;
    },
    async sent(endpoint, ticket) {
      await call(endpoint, 'sent', ticket);
    },
    async cancel(endpoint, ticket) {
      await call(endpoint, 'cancel', ticket);
    },
    async pause(endpoint, pauseMs, first = '') {
      await call(endpoint, 'pause', first, String(Math.round(pauseMs * US_PER_MS)));
    },
  };
}

type ReserveReply = [
  state: Reservation['state'],
  wait: number,
  remaining: number,
  reset: number,
  ticket: string,
];

/**
 * Times are whole µs, which a Lua number and a score hold exactly. A ticket has three parts, with spaces between: the
 * time of the request in 16 digits, by which tickets of the same slot are sorted; its holders; and a unique id.
 * Redis does nothing else while the script runs: the cost of each branch is at most linear in the number of slots.
 */
const SCRIPT = `
local limit, window, hold = tonumber(ARGV[1]), tonumber(ARGV[2]), tonumber(ARGV[3])
local op, ticket = ARGV[4], ARGV[5]
if op == 'cancel' then return redis.call('ZREM', KEYS[1], ticket) end

local state = redis.call('HMGET', KEYS[2], 'paused-until', 'seen-at')
local paused_until, seen_at = tonumber(state[1] or '0'), tonumber(state[2] or '0')
local clock = redis.call('TIME')
local now = clock[1] * 1000000 + clock[2]

local function keep()
  local last = tonumber(redis.call('ZRANGE', KEYS[1], -1, -1, 'WITHSCORES')[2] or now)
  local paused, seen = string.format('%.0f', paused_until), string.format('%.0f', now)
  redis.call('HSET', KEYS[2], 'paused-until', paused, 'seen-at', seen)
  redis.call('PEXPIRE', KEYS[1], math.ceil((math.max(last, now) + window - now) / 1000))
  local over = math.max(last + window, now + window, paused_until)
  redis.call('PEXPIRE', KEYS[2], math.ceil((over - now) / 1000))
end

-- The clock was set back: move all times with it, so that nothing is forgotten and nothing lasts longer.
if now < seen_at then
  local back = seen_at - now
  local stored = redis.call('ZRANGE', KEYS[1], 0, -1, 'WITHSCORES')
  for i = 1, #stored, 2 do redis.call('ZADD', KEYS[1], tonumber(stored[i + 1]) - back, stored[i]) end
  paused_until = math.max(0, paused_until - back)
  keep()
end
redis.call('ZREMRANGEBYSCORE', KEYS[1], '-inf', now - window)
local earliest = math.max(now + hold, paused_until)

if op == 'reserve' then
  local max_wait, share = tonumber(ARGV[6]), tonumber(ARGV[7])
  local holders = {}
  for holder in string.gmatch(ticket, '%S+ ') do holders[#holders + 1] = { name = ' ' .. holder, future = 0 } end
  ticket = string.format('%016.0f ', now) .. ticket
  local times = {}
  local stored = redis.call('ZRANGE', KEYS[1], 0, -1, 'WITHSCORES')
  for i = 1, #stored, 2 do
    local at = tonumber(stored[i + 1])
    times[#times + 1] = at
    if at > now then
      for _, holder in ipairs(holders) do
        if string.find(stored[i], holder.name, 17, true) then
          holder.future, holder.next = holder.future + 1, holder.next or at
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
  local function answer(state, wait)
    local last = math.max(times[#times] or now - window, state == 'granted' and slot or 0)
    local left = limit - #times - (state == 'granted' and 1 or 0)
    return { state, wait, math.max(0, left), math.max(0, last + window - now), ticket }
  end
  if slot - now > max_wait then return answer('refused', slot - now) end
  local next_own = 0
  for _, holder in ipairs(holders) do
    if holder.future >= share then next_own = math.max(next_own, holder.next) end
  end
  if slot > now and next_own > 0 then return answer('share_taken', next_own - now) end
  redis.call('ZADD', KEYS[1], slot, ticket)
  keep()
  return answer('granted', slot - now)
end

if op == 'sent' then
  redis.call('ZADD', KEYS[1], now, ticket)
  keep()
  return 0
end

-- Ignore future slots: their messages call 'start' themselves, and then move behind this one if needed.
local own = tonumber(redis.call('ZSCORE', KEYS[1], ticket) or '0')
redis.call('ZREM', KEYS[1], ticket)
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
  local slot = place_behind(ticket, math.max(earliest, own))
  keep()
  return slot - now
end

if op == 'pause' then
  paused_until = math.max(paused_until, now + tonumber(ARGV[6]))
  local future = redis.call('ZRANGEBYSCORE', KEYS[1], '(' .. string.format('%.0f', now), '+inf', 'WITHSCORES')
  if ticket ~= '' then place_behind(ticket, paused_until) end
  for i = 1, #future, 2 do place_behind(future[i], math.max(paused_until, tonumber(future[i + 1]))) end
  keep()
  return 0
end
`;
