import { randomUUID } from 'node:crypto';
import type { Redis } from '../storage/redis.ts';
import { keyPart } from '../storage/redis-key.ts';
import type { StreamLeases } from './places.ts';

/** Times in ms. */
export interface LeaseTimes {
  /** How long a place stays taken after its instance has died. */
  readonly leaseMs: number;
  /** How often an instance renews its leases. */
  readonly renewMs: number;
}

/** Two renewals in a row may fail before an open stream is no longer counted. */
const TIMES: LeaseTimes = { leaseMs: 10_000, renewMs: 3_000 };

/**
 * Counts the open streams over all instances. A lease is a member of its holder's sorted set, by the time at which it
 * expires on Redis's own clock. An instance renews its leases, also those that Redis has lost; the leases of an instance
 * that died expire, and so do those that could not be given back.
 */
export function redisStreamLeases(redis: Redis, { leaseMs, renewMs }: LeaseTimes = TIMES): StreamLeases {
  const add = redis.script(ADD);
  const renew = redis.script(RENEW);
  /** The key of the holder, by the id of each lease of this instance. */
  const held = new Map<string, string>();
  const returns = new Set<Promise<unknown>>();
  let timer: NodeJS.Timeout | undefined;

  async function renewAll(): Promise<void> {
    const byKey = Map.groupBy(held, ([, key]) => key);
    // The next interval tries again what has failed.
    await Promise.allSettled(
      [...byKey].map(([key, leases]) => renew([key], [String(leaseMs), ...leases.map(([id]) => id)])),
    );
  }

  /** If this fails, the lease expires. */
  function giveBack(id: string, key: string): void {
    const done = redis.run((client) => client.zRem(key, id)).catch(() => {});
    returns.add(done);
    void done.then(() => returns.delete(done));
  }

  return {
    async acquire(holder, max) {
      const id = randomUUID();
      const key = `bot-relay:streams:${keyPart(holder)}`;
      try {
        if ((await add([key], [String(leaseMs), id, String(max)])) !== 1) return undefined;
      } catch (error) {
        // Redis may still have added the lease.
        giveBack(id, key);
        throw error;
      }
      held.set(id, key);
      timer ??= setInterval(renewAll, renewMs).unref();
      return {
        release() {
          if (!held.delete(id)) return;
          if (held.size === 0) {
            clearInterval(timer);
            timer = undefined;
          }
          giveBack(id, key);
        },
      };
    },
    async close() {
      await Promise.all(returns);
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

/** Extends each lease ARGV[i], from the second on; a lease that Redis has lost is added again. */
const RENEW = `${NOW}
for i = 2, #ARGV do redis.call('ZADD', KEYS[1], now + ARGV[1], ARGV[i]) end
redis.call('PEXPIRE', KEYS[1], ARGV[1])
`;
