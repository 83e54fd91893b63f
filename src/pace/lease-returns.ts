import type { Redis } from '../storage/redis.ts';
import { batches, type Lease, type LeaseScripts } from './lease-scripts.ts';

/** Leases on their way back. */
export interface LeaseReturns {
  /** Gives a lease back. What Redis does not hear is told again until it does. */
  giveBack(lease: Lease): void;
  /** Resolves when Redis has heard all, or has not heard the last try; nothing is told again after that. */
  close(): Promise<void>;
}

/** How long after a failure Redis is told again what was given back, in ms. */
const RETRY_MS = 500;

/** Gives leases back to Redis. */
export function leaseReturns(redis: Redis, { forget }: LeaseScripts): LeaseReturns {
  /** What was given back without Redis's knowledge: no more than messages ended while it was away. */
  const unheard = new Map<string, string>();
  const underWay = new Set<Promise<unknown>>();
  let retry: NodeJS.Timeout | undefined;
  let closed = false;

  async function tellAgain(): Promise<void> {
    for (const batch of batches(unheard)) {
      await forget(batch);
      for (const [id] of batch) unheard.delete(id);
    }
  }

  function tellLater(): void {
    if (closed || unheard.size === 0) return;
    retry ??= setTimeout(async () => {
      await tellAgain().catch(() => {});
      retry = undefined;
      tellLater();
    }, RETRY_MS).unref();
  }

  return {
    giveBack([id, key]) {
      const done = redis
        .run((client) => client.zRem(key, id))
        .catch(() => {
          unheard.set(id, key);
          tellLater();
        });
      underWay.add(done);
      done.then(() => underWay.delete(done));
    },
    async close() {
      closed = true;
      clearTimeout(retry);
      await Promise.all(underWay);
      // If Redis does not hear this either, the leases expire.
      await tellAgain().catch(() => {});
    },
  };
}
