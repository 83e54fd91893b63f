import type { Redis } from '../storage/redis.ts';
import type { UnsentStore } from './unsent-store.ts';

/** The channel on which the name of each stopped conversation is published. */
const CHANNEL = 'bot-relay:stopped-conversations';

/** Both keys have one hash tag, so that they are on one node of a cluster. */
const keysOf = (conversation: string) => [
  `bot-relay:{unsent:${conversation}}:tickets`,
  `bot-relay:{unsent:${conversation}}:stopped`,
];

/**
 * The unsent messages of all instances, in Redis; each call is one round trip. A ticket is forgotten after `keptMs`,
 * which must be longer than a message waits: its instance may have died.
 */
export function redisUnsent(redis: Redis, keptMs: number): UnsentStore {
  const run = redis.script(SCRIPT);
  const kept = String(keptMs);
  return {
    async enter(conversation, ticket) {
      await run(keysOf(conversation), ['enter', kept, ticket]);
    },
    leave: async (conversation, ticket) => (await run(keysOf(conversation), ['leave', kept, ticket])) === 1,
    stop: (conversation) =>
      run(keysOf(conversation), ['stop', kept, CHANNEL, conversation]) as Promise<number>,
    listen(stopped) {
      void redis.subscribe(CHANNEL, stopped);
    },
  };
}

/**
 * The keys are sorted sets of tickets by the time at which they are forgotten, in ms: those that wait, and those that
 * were stopped. A ticket in neither of them was lost with the data of Redis, and its message may be sent.
 */
const SCRIPT = `
local op, kept, ticket = ARGV[1], tonumber(ARGV[2]), ARGV[3]
if op == 'leave' then
  if redis.call('ZREM', KEYS[1], ticket) == 1 then return 1 end
  return 1 - redis.call('ZREM', KEYS[2], ticket)
end

local clock = redis.call('TIME')
local now = clock[1] * 1000 + math.floor(clock[2] / 1000)
local function add(key, name)
  redis.call('ZREMRANGEBYSCORE', key, '-inf', now)
  redis.call('ZADD', key, now + kept, name)
  if redis.call('PTTL', key) < kept then redis.call('PEXPIRE', key, kept) end
end
if op == 'enter' then
  add(KEYS[1], ticket)
  return 0
end

local waiting = redis.call('ZRANGEBYSCORE', KEYS[1], '(' .. now, '+inf')
for _, name in ipairs(waiting) do add(KEYS[2], name) end
redis.call('DEL', KEYS[1])
redis.call('PUBLISH', ARGV[3], ARGV[4])
return #waiting
`;
