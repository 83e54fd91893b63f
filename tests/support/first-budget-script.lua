-- The script of budgets in Redis as release 0.1.0 sent it, for tests of a rolling update.
local limit, window, hold = tonumber(ARGV[1]), tonumber(ARGV[2]), tonumber(ARGV[3])
local op, ticket = ARGV[4], ARGV[5]
if op == 'cancel' then return redis.call('ZREM', KEYS[1], ticket) end

local clock = redis.call('TIME')
local now = clock[1] * 1000000 + clock[2]
local state = redis.call('HMGET', KEYS[2], 'paused-until', 'seen-at')
local paused_until, seen_at = tonumber(state[1] or '0'), tonumber(state[2] or '0')

local function keep()
  local last = tonumber(redis.call('ZRANGE', KEYS[1], -1, -1, 'WITHSCORES')[2] or now)
  redis.call('HSET', KEYS[2], 'paused-until', string.format('%.0f', paused_until), 'seen-at', string.format('%.0f', now))
  redis.call('PEXPIRE', KEYS[1], math.ceil((math.max(last, now) + window - now) / 1000))
  redis.call('PEXPIRE', KEYS[2], math.ceil((math.max(last + window, now + window, paused_until) - now) / 1000))
end

-- The clock was set back: everything moves with it, so that nothing is forgotten and nothing lasts longer.
if now < seen_at then
  local back = seen_at - now
  local stored = redis.call('ZRANGE', KEYS[1], 0, -1, 'WITHSCORES')
  for i = 1, #stored, 2 do redis.call('ZADD', KEYS[1], tonumber(stored[i + 1]) - back, stored[i]) end
  paused_until = math.max(0, paused_until - back)
  keep()
end
redis.call('ZREMRANGEBYSCORE', KEYS[1], '-inf', now - window)

if op == 'reserve' then
  local max_wait, share = tonumber(ARGV[6]), tonumber(ARGV[7])
  local holder = string.match(ticket, '^%S+ ')
  ticket = string.format('%016.0f ', now) .. ticket
  local times, ahead, next_own = {}, 0, nil
  local stored = redis.call('ZRANGE', KEYS[1], 0, -1, 'WITHSCORES')
  for i = 1, #stored, 2 do
    local at = tonumber(stored[i + 1])
    times[#times + 1] = at
    if at > now and string.sub(stored[i], 18, 17 + #holder) == holder then
      ahead, next_own = ahead + 1, next_own or at
    end
  end

  -- Whether any limit + 1 in a row, with one more at this time, span a window. To be asked in order of time.
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

  local slot = first_slot(math.max(now + hold, paused_until))
  local function answer(state, until_time, count, last)
    local reset = math.max(0, (last or now - window) + window - now)
    return { state, until_time - now, math.max(0, limit - count), reset, ticket }
  end
  if slot - now > max_wait then return answer('refused', slot, #times, times[#times]) end
  if slot > now and ahead >= share then return answer('share_taken', next_own, #times, times[#times]) end
  redis.call('ZADD', KEYS[1], slot, ticket)
  keep()
  return answer('granted', slot, #times + 1, math.max(times[#times] or slot, slot))
end

if op == 'sent' then
  redis.call('ZADD', KEYS[1], now, ticket)
  keep()
  return 0
end

-- What lies ahead gives way to a slot that has come: it is asked again before it starts.
local own = tonumber(redis.call('ZSCORE', KEYS[1], ticket) or '0')
redis.call('ZREM', KEYS[1], ticket)
local recent = redis.call('ZREVRANGEBYSCORE', KEYS[1], now, '-inf', 'WITHSCORES', 'LIMIT', 0, limit)
local behind = {}
for i = #recent, 2, -2 do behind[#behind + 1] = tonumber(recent[i]) end

-- Gives it the first slot from this time on that lies behind all of those; later calls are for later slots.
local function place_behind(name, from)
  local slot = math.max(from, (behind[#behind + 1 - limit] or -window) + window)
  behind[#behind + 1] = slot
  redis.call('ZADD', KEYS[1], slot, name)
  return slot
end

if op == 'start' then
  local slot = place_behind(ticket, math.max(now + hold, paused_until, own))
  keep()
  return slot - now
end

if op == 'penalize' then
  paused_until = math.max(paused_until, now + tonumber(ARGV[6]))
  local ahead = redis.call('ZRANGEBYSCORE', KEYS[1], '(' .. string.format('%.0f', now), '+inf', 'WITHSCORES')
  place_behind(ticket, paused_until)
  for i = 1, #ahead, 2 do place_behind(ahead[i], math.max(paused_until, tonumber(ahead[i + 1]))) end
  keep()
  return 0
end
