import { memorySessionStore } from '../authenticate/sessions/memory-session-store.ts';
import { redisSessionStore } from '../authenticate/sessions/redis-session-store.ts';
import { sealer } from '../authenticate/sessions/seal.ts';
import { sessionTexts } from '../authenticate/sessions/session-text.ts';
import type { Logger } from '../logger.ts';
import { type Rate, spaced } from '../pace/budgets.ts';
import { memoryAttempts } from '../pace/memory-attempts.ts';
import { memoryBudgets } from '../pace/memory-budgets.ts';
import { memoryStreamLeases } from '../pace/memory-stream-leases.ts';
import { redisAttempts } from '../pace/redis-attempts.ts';
import { redisBudgets } from '../pace/redis-budgets.ts';
import { redisCounts } from '../pace/redis-counts.ts';
import { redisStreamLeases } from '../pace/redis-stream-leases.ts';
import { memoryCounts } from '../pace/request-limits.ts';
import type { Stores } from '../routes/parts.ts';
import type { Secret } from '../secret.ts';
import type { Redis } from '../storage/redis.ts';

export interface StoresOptions {
  /** Without it, one instance keeps everything in its memory. */
  readonly redis: Redis | undefined;
  readonly logger: Logger;
  /** The bot service's own rate. */
  readonly rate: Rate;
  /** What seals sessions: the first seals, all open. */
  readonly session: { readonly secrets: readonly Secret[] };
}

/** What the keys that seal sessions are derived for. */
const SEALED = 'bot-relay sessions';

/** Keeps everything in Redis, or everything in this process. Whoever opens them closes sessions and streams. */
export function openStores({ redis, logger, rate, session }: StoresOptions): Stores {
  return redis
    ? {
        sessions: redisSessionStore({ redis, logger, texts: sessionTexts(sealer(session.secrets, SEALED)) }),
        budgets: redisBudgets(redis, spaced(rate)),
        streams: redisStreamLeases(redis),
        counts: redisCounts(redis),
        attempts: redisAttempts(redis),
      }
    : {
        sessions: memorySessionStore(),
        budgets: memoryBudgets(spaced(rate)),
        streams: memoryStreamLeases(),
        counts: memoryCounts,
        attempts: memoryAttempts,
      };
}
