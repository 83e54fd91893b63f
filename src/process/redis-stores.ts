import { redisSessionStore } from '../authenticate/sessions/redis-session-store.ts';
import { scopedSealer, sealer } from '../authenticate/sessions/seal.ts';
import { sessionCodec } from '../authenticate/sessions/session-codec.ts';
import { redisGivenBlobs } from '../guard/redis-given-blobs.ts';
import type { Logger } from '../logger.ts';
import { withJitterMargin } from '../pace/budgets.ts';
import { redisAttempts } from '../pace/redis-attempts.ts';
import { redisBudgets } from '../pace/redis-budgets.ts';
import { redisCounts } from '../pace/redis-counts.ts';
import { redisStreamLeases } from '../pace/redis-stream-leases.ts';
import type { PacedRate } from '../pace/slot-waits.ts';
import type { Stores } from '../routes/dependencies.ts';
import { redisRunStore } from '../runs/redis-run-store.ts';
import type { RunLeases, RunTimes } from '../runs/run-store.ts';
import type { Secret } from '../secret.ts';
import type { Redis } from '../storage/redis.ts';

export interface RedisStoresOptions {
  readonly logger: Logger;
  /** The bot service's own rate. */
  readonly rate: PacedRate;
  /** The secrets that seal sessions and runs, of which the first seals and all open; and how long a session can live. */
  readonly session: { readonly secrets: readonly Secret[]; readonly absoluteMs: number };
  readonly runs: RunTimes & { readonly maxBytes: number; readonly leases: Partial<RunLeases> };
}

/** The purposes for which the keys that seal sessions and runs are derived. */
const SEAL_PURPOSE = 'bot-relay sessions';
const RUN_SEAL_PURPOSE = 'bot-relay runs';

/** Opens all stores in Redis. */
export function redisStores(redis: Redis, { logger, rate, session, runs }: RedisStoresOptions): Stores {
  return {
    sessions: redisSessionStore({
      redis,
      logger,
      absoluteMs: session.absoluteMs,
      codec: sessionCodec(sealer(session.secrets, SEAL_PURPOSE)),
    }),
    budgets: redisBudgets(redis, withJitterMargin(rate)),
    streams: redisStreamLeases(redis),
    blobs: redisGivenBlobs(redis),
    counts: redisCounts(redis),
    attempts: redisAttempts(redis),
    runStore: redisRunStore(redis, scopedSealer(session.secrets, RUN_SEAL_PURPOSE), {
      times: runs,
      maxBytes: runs.maxBytes,
      leases: runs.leases,
    }),
  };
}
