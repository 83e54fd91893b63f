import { randomUUID } from 'node:crypto';
import type { Redis } from '../redis.ts';
import { keyPart } from './redis-key.ts';
import type { StreamLeases } from './stream-leases.ts';

/** Times in ms. */
export interface LeaseTimes {
  /** How long a place stays taken when the instance that holds it says nothing more. */
  readonly leaseMs: number;
  /** How often an instance says so. */
  readonly renewMs: number;
}

/** Two renewals may fail before a stream that goes on is not counted. */
const TIMES: LeaseTimes = { leaseMs: 30_000, renewMs: 10_000 };
/** Leases that one run of the script renews: Redis does nothing else meanwhile. */
const BATCH = 500;

/**
 * At most `max` streams of one session over all instances. A lease is a member of its session's sorted set, by
 * the time at which it expires on Redis's own clock. An instance renews all that it holds; those of one that died
 * expire. While Redis is away, open streams go on, and are counted again when it is back.
 */
export function redisStreamLeases(redis: Redis, max: number, times: LeaseTimes = TIMES): StreamLeases {
  const add = redis.script(ADD);
  const renew = redis.script(RENEW);
  const leaseMs = String(times.leaseMs);
  /** What this instance holds: the session's key of each lease. */
  const held = new Map<string, string>();
  const releases = new Set<Promise<unknown>>();
  let timer: NodeJS.Timeout | undefined;

  async function renewAll(): Promise<void> {
    const ids = [...held.keys()];
    while (ids.length > 0) {
      // Not those that were released while the batch before was under way.
      const batch = ids.splice(0, BATCH).filter((id) => held.has(id));
      await renew(
        batch.map((id) => held.get(id) as string),
        [leaseMs, ...batch],
      );
    }
  }

  function hold(key: string, id: string): void {
    held.set(id, key);
    // What fails is done next time.
    timer ??= setInterval(() => renewAll().catch(() => {}), times.renewMs).unref();
  }

  function release(key: string, id: string): void {
    held.delete(id);
    if (held.size === 0) {
      clearInterval(timer);
      timer = undefined;
    }
    // If Redis does not hear this, the lease expires.
    const done = redis.run((client) => client.zRem(key, id)).catch(() => {});
    releases.add(done);
    done.then(() => releases.delete(done));
  }

  return {
    async acquire(sessionId) {
      const key = `bot-relay:streams:${keyPart(sessionId)}`;
      const id = randomUUID();
      try {
        if ((await add([key], [leaseMs, id, String(max)])) !== 1) return undefined;
      } catch (error) {
        // Redis may have added it all the same, or may still do so.
        release(key, id);
        throw error;
      }
      hold(key, id);
      return {
        release() {
          if (held.has(id)) release(key, id);
        },
      };
    },
    async close() {
      await Promise.all(releases);
    },
  };
}

const NOW = `
local clock = redis.call('TIME')
local now = clock[1] * 1000 + math.floor(clock[2] / 1000)
`;

/** Adds the lease ARGV[2] for ARGV[1] ms unless there are ARGV[3] already; returns how many were added. */
const ADD = `${NOW}
redis.call('ZREMRANGEBYSCORE', KEYS[1], '-inf', now)
if redis.call('ZCARD', KEYS[1]) >= tonumber(ARGV[3]) then return 0 end
redis.call('ZADD', KEYS[1], now + ARGV[1], ARGV[2])
redis.call('PEXPIRE', KEYS[1], ARGV[1])
return 1
`;

/** Moves the end of each lease ARGV[i + 1] of KEYS[i]; what Redis has lost is there again. */
const RENEW = `${NOW}
for i, key in ipairs(KEYS) do
  redis.call('ZADD', key, now + ARGV[1], ARGV[i + 1])
  redis.call('PEXPIRE', key, ARGV[1])
end
`;
