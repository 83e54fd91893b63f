import { randomUUID } from 'node:crypto';
import type { Redis } from '../storage/redis.ts';
import { keyPart } from '../storage/redis-key.ts';
import type { AttemptCounts } from './attempts.ts';

/**
 * How long an attempt counts as running if its instance dies, in ms: longer than an attempt waits for its turn and is
 * checked.
 */
const LEASE_MS = 60_000;

/**
 * Counts the attempts of all instances together. Each key has one hash: its failures, when they are forgotten, and when
 * the lease of each running attempt expires, all by Redis's own clock.
 */
export function redisAttempts(redis: Redis, leaseMs = LEASE_MS): AttemptCounts {
  const read = redis.script(READ);
  const begin = redis.script(BEGIN);
  const fail = redis.script(FAIL);
  return ({ name, maxFailures, windowMs }) => {
    const redisKey = (key: string) => redisKeyOf(name, key);
    return {
      async failures(key) {
        const [count, resetMs] = (await read([redisKey(key)], [])) as [number, number];
        return { count, resetMs };
      },
      async begin(key) {
        const keys = [redisKey(key)];
        const id = randomUUID();
        // If this fails, the lease expires.
        const giveBack = () => void redis.run((client) => client.hDel(redisKey(key), id)).catch(() => {});
        const reply = begin(keys, [String(maxFailures), String(leaseMs), id]);
        // After an error, Redis may still have begun the attempt, or may do so later.
        reply.catch(giveBack);
        const [state, resetMs] = (await reply) as ['begun' | 'wait' | 'refused', number];
        if (state !== 'begun') return { state, resetMs };
        let isRunning = true;
        return {
          state,
          attempt: {
            async failed() {
              isRunning = false;
              await fail(keys, [id, String(windowMs)]);
            },
            end() {
              if (isRunning) giveBack();
              isRunning = false;
            },
          },
        };
      },
    };
  };
}

/**
 * Forgets which attempts of `subject` have failed; those that are running still count. Returns false if there were none.
 * @throws Problem `session_store_unavailable` if Redis is out of reach
 */
export async function forgetFailures(redis: Redis, name: string, subject: string): Promise<boolean> {
  const key = redisKeyOf(name, keyPart(subject));
  return (await redis.run((client) => client.hDel(key, ['failures', 'resetAt']))) > 0;
}

const redisKeyOf = (name: string, key: string) => `bot-relay:attempts:${name}:${key}`;

const NOW = `
local clock = redis.call('TIME')
local now = clock[1] * 1000 + math.floor(clock[2] / 1000)
`;

/** Reads how many have failed in the current window, and in how many ms it ends. */
const FAILURES = `${NOW}
local known = redis.call('HMGET', KEYS[1], 'failures', 'resetAt')
local resetMs = math.max(0, tonumber(known[2] or '0') - now)
local failures = resetMs > 0 and tonumber(known[1]) or 0
`;

const READ = `${FAILURES}
return { failures, resetMs }
`;

/** Begins the attempt ARGV[3] for ARGV[2] ms, unless ARGV[1] have failed or are running. */
const BEGIN = `${FAILURES}
local max = tonumber(ARGV[1])
if failures >= max then return { 'refused', resetMs } end
local running = 0
local fields = redis.call('HGETALL', KEYS[1])
for i = 1, #fields, 2 do
  if fields[i] ~= 'failures' and fields[i] ~= 'resetAt' then
    if tonumber(fields[i + 1]) > now then running = running + 1
    else redis.call('HDEL', KEYS[1], fields[i]) end
  end
end
if failures + running >= max then return { 'wait', 0 } end
redis.call('HSET', KEYS[1], ARGV[3], now + ARGV[2])
if redis.call('PTTL', KEYS[1]) < tonumber(ARGV[2]) then redis.call('PEXPIRE', KEYS[1], ARGV[2]) end
return { 'begun', 0 }
`;

/** Ends the attempt ARGV[1] and counts it as failed; the first failure starts a window of ARGV[2] ms. */
const FAIL = `${FAILURES}
redis.call('HDEL', KEYS[1], ARGV[1])
if failures == 0 then resetMs = tonumber(ARGV[2]) end
redis.call('HSET', KEYS[1], 'failures', failures + 1, 'resetAt', now + resetMs)
if redis.call('PTTL', KEYS[1]) < resetMs then redis.call('PEXPIRE', KEYS[1], resetMs) end
`;
