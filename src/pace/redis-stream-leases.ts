import { randomUUID } from 'node:crypto';
import type { Redis } from '../storage/redis.ts';
import { keyPart } from '../storage/redis-key.ts';
import { heldLeases } from './held-leases.ts';
import { leaseReturns } from './lease-returns.ts';
import { type Lease, leaseScripts } from './lease-scripts.ts';
import type { StreamLeases } from './stream-leases.ts';

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
 * expires on Redis's own clock. An instance renews its leases; the leases of an instance that died expire. While Redis
 * is away, open streams continue. When it is back, they are counted again, and leases that were given back are free.
 */
export function redisStreamLeases(redis: Redis, times: LeaseTimes = TIMES): StreamLeases {
  const scripts = leaseScripts(redis, times.leaseMs);
  const returns = leaseReturns(redis, scripts);
  const held = heldLeases({ scripts, returns, renewMs: times.renewMs });
  return {
    async acquire(holder, max) {
      const id = randomUUID();
      const lease: Lease = [id, `bot-relay:streams:${keyPart(holder)}`];
      try {
        if (!(await scripts.add(lease, max))) return undefined;
      } catch (error) {
        // After an error, Redis may still have added the lease, or may do so later.
        held.release(lease);
        throw error;
      }
      held.hold(lease);
      return {
        release() {
          if (held.has(id)) held.release(lease);
        },
      };
    },
    close: returns.close,
  };
}
