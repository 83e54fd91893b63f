import { randomUUID } from 'node:crypto';
import type { Redis } from '../storage/redis.ts';
import { keyPart } from '../storage/redis-key.ts';
import { heldLeases } from './held-leases.ts';
import { leaseReturns } from './lease-returns.ts';
import { type Lease, leaseScripts } from './lease-scripts.ts';
import type { StreamLeases } from './stream-leases.ts';

/** Times in ms. */
export interface LeaseTimes {
  /** How long a place stays taken when the instance that holds it says nothing more. */
  readonly leaseMs: number;
  /** How often an instance says so. */
  readonly renewMs: number;
}

/** Two renewals may fail before a stream that goes on is not counted. */
const TIMES: LeaseTimes = { leaseMs: 10_000, renewMs: 3_000 };

/**
 * The open streams over all instances. A lease is a member of its holder's sorted set, by the time at which it expires
 * on Redis's own clock. An instance renews all that it holds; those of one that died expire. While Redis is away,
 * open streams go on; when it is back, they are counted again, and what was given back meanwhile is free.
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
        // Redis may have added it all the same, or may still do so.
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
