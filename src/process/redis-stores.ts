import { redisSessionStore } from '../authenticate/sessions/redis-session-store.ts';
import { scopedSealer, sealer } from '../authenticate/sessions/seal.ts';
import { sessionCodec } from '../authenticate/sessions/session-codec.ts';
import { redisChannelOwners } from '../guard/redis-channel-owners.ts';
import { redisGivenBlobs } from '../guard/redis-given-blobs.ts';
import { redisRuns } from '../join/redis-runs.ts';
import type { Logger } from '../logger.ts';
import { withJitterMargin } from '../pace/budgets.ts';
import { redisAttempts } from '../pace/redis-attempts.ts';
import { redisBudgets } from '../pace/redis-budgets.ts';
import { redisCounts } from '../pace/redis-counts.ts';
import { redisStreamLeases } from '../pace/redis-stream-leases.ts';
import { redisUnsent } from '../pace/redis-unsent.ts';
import type { PacedRate } from '../pace/slot-waits.ts';
import type { Stores } from '../routes/parts.ts';
import type { Secret } from '../secret.ts';
import type { Redis } from '../storage/redis.ts';

export interface RedisStoresOptions {
  readonly logger: Logger;
  /** The bot service's own rate. */
  readonly rate: PacedRate;
  /** The secrets that seal sessions and runs: the first one seals, each of them opens. And how long a session can live. */
  readonly session: { readonly secrets: readonly Secret[]; readonly absoluteMs: number };
}

/** The purposes for which the keys that seal sessions and runs are derived. */
const SEAL_PURPOSE = 'bot-relay sessions';
const RUN_SEAL_PURPOSE = 'bot-relay runs';

/** How much longer than all its waits a message is remembered as unsent, in ms. */
const UNSENT_MARGIN_MS = 65_000;

/** Opens all stores in Redis. */
export function redisStores(redis: Redis, { logger, rate, session }: RedisStoresOptions): Stores {
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
    unsent: redisUnsent(redis, rate.windowMs + rate.maxWaitMs + UNSENT_MARGIN_MS),
    counts: redisCounts(redis),
    attempts: redisAttempts(redis),
    channelOwners: redisChannelOwners(redis),
    runs: redisRuns(redis, scopedSealer(session.secrets, RUN_SEAL_PURPOSE)),
  };
}
