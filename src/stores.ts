import { MemorySessionStore } from './authenticate/memory-session-store.ts';
import { redisSessionStore } from './authenticate/redis-session-store.ts';
import type { SessionStore } from './authenticate/session-store.ts';
import type { AttemptCounts } from './guard/attempts.ts';
import { type EndpointBudgets, type Rate, spaced } from './guard/budgets.ts';
import { memoryAttempts } from './guard/memory-attempts.ts';
import { memoryBudgets } from './guard/memory-budgets.ts';
import { memoryStreamLeases } from './guard/memory-stream-leases.ts';
import { redisAttempts } from './guard/redis-attempts.ts';
import { redisBudgets } from './guard/redis-budgets.ts';
import { redisCounts } from './guard/redis-counts.ts';
import { redisStreamLeases } from './guard/redis-stream-leases.ts';
import { type Counts, memoryCounts } from './guard/request-limits.ts';
import type { StreamLeases } from './guard/stream-leases.ts';
import type { Logger } from './logger.ts';
import type { Redis } from './redis.ts';

/** What all instances know together. */
export interface Stores {
  readonly sessions: SessionStore;
  readonly budgets: EndpointBudgets;
  readonly streams: StreamLeases;
  /** Where requests are counted. */
  readonly counts: Counts;
  /** Where sign-ins with a password are counted. */
  readonly attempts: AttemptCounts;
}

export interface StoresOptions {
  /** Without it, one instance keeps everything in its memory. */
  readonly redis: Redis | undefined;
  readonly logger: Logger;
  /** The bot service's own rate. */
  readonly rate: Rate;
}

/** Keeps everything in Redis, or everything in this process. Whoever opens them closes sessions and streams. */
export function openStores({ redis, logger, rate }: StoresOptions): Stores {
  return redis
    ? {
        sessions: redisSessionStore({ redis, logger }),
        budgets: redisBudgets(redis, spaced(rate)),
        streams: redisStreamLeases(redis),
        counts: redisCounts(redis),
        attempts: redisAttempts(redis),
      }
    : {
        sessions: new MemorySessionStore(),
        budgets: memoryBudgets(spaced(rate)),
        streams: memoryStreamLeases(),
        counts: memoryCounts,
        attempts: memoryAttempts,
      };
}
