import { memorySessionStore } from '../authenticate/sessions/memory-session-store.ts';
import { memoryChannelOwners } from '../guard/memory-channel-owners.ts';
import { memoryGivenBlobs } from '../guard/memory-given-blobs.ts';
import { memoryRuns } from '../join/memory-runs.ts';
import { withJitterMargin } from '../pace/budgets.ts';
import { memoryAttempts } from '../pace/memory-attempts.ts';
import { memoryBudgets } from '../pace/memory-budgets.ts';
import { memoryStreamLeases } from '../pace/memory-stream-leases.ts';
import { memoryUnsent } from '../pace/memory-unsent.ts';
import { memoryCounts } from '../pace/request-limits.ts';
import type { Stores } from '../routes/parts.ts';
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
    unsent: memoryUnsent(),
    counts: memoryCounts,
    attempts: memoryAttempts,
    channelOwners: memoryChannelOwners(),
    runs: memoryRuns(),
  };
}
