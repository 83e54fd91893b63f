import type { Redis } from '../storage/redis.ts';
import { batches, type Lease, type LeaseScripts } from './lease-scripts.ts';

/** Gives leases back, and tries again where Redis could not be reached. */
export interface LeaseReturns {
  /** Gives a lease back. If that fails, it is tried again until it works. */
  giveBack(lease: Lease): void;
  /** Tries all failed returns a last time, and resolves when that is done. */
  close(): Promise<void>;
}

/** How long after a failure the returns are tried again, in ms. */
const TRY_AGAIN_MS = 500;

/** Gives leases back to Redis. */
export function leaseReturns(redis: Redis, { forget }: LeaseScripts): LeaseReturns {
  /** Returns that failed: at most one for each message that ended while Redis was away. */
  const failed = new Map<string, string>();
  const underWay = new Set<Promise<unknown>>();
  let timer: NodeJS.Timeout | undefined;
  let closed = false;

  async function returnFailed(): Promise<void> {
    for (const batch of batches(failed)) {
      await forget(batch);
      for (const [id] of batch) failed.delete(id);
    }
  }

  function tryAgainLater(): void {
    if (closed || failed.size === 0) return;
    timer ??= setTimeout(async () => {
      await returnFailed().catch(() => {});
      timer = undefined;
      tryAgainLater();
    }, TRY_AGAIN_MS).unref();
  }

  return {
    giveBack([id, key]) {
      const done = redis
        .run((client) => client.zRem(key, id))
        .catch(() => {
          failed.set(id, key);
          tryAgainLater();
        });
      underWay.add(done);
      done.then(() => underWay.delete(done));
    },
    async close() {
      closed = true;
      clearTimeout(timer);
      await Promise.all(underWay);
      // If this fails too, the leases expire.
      await returnFailed().catch(() => {});
    },
  };
}
