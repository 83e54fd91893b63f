import { memorySessionStore } from '../authenticate/sessions/memory-session-store.ts';
import { memoryGivenBlobs } from '../guard/memory-given-blobs.ts';
import { withJitterMargin } from '../pace/budgets.ts';
import { memoryAttempts } from '../pace/memory-attempts.ts';
import { memoryBudgets } from '../pace/memory-budgets.ts';
import { memoryStreamLeases } from '../pace/memory-stream-leases.ts';
import { memoryCounts } from '../pace/request-limits.ts';
import type { Stores } from '../routes/dependencies.ts';
import { MemoryRunStore } from '../runs/memory-run-store.ts';
import type { Redis } from '../storage/redis.ts';
import type { RedisStoresOptions } from './redis-stores.ts';

export interface StoresOptions extends RedisStoresOptions {
  /** Without it, this process keeps everything in its memory. */
  readonly redis: Redis | undefined;
}

/**
 * Opens all stores in Redis, or all in the memory of this process. The caller closes sessions and streams. What only
 * Redis needs is loaded only with it.
 */
export async function openStores(options: StoresOptions): Promise<Stores> {
  const { redis, rate } = options;
  if (redis) {
    const { redisStores } = await import('./redis-stores.ts');
    return redisStores(redis, options);
  }
  return {
    sessions: memorySessionStore(),
    budgets: memoryBudgets(withJitterMargin(rate)),
    streams: memoryStreamLeases(),
    blobs: memoryGivenBlobs(),
    counts: memoryCounts,
    attempts: memoryAttempts,
    runStore: new MemoryRunStore(options.runs),
  };
}
