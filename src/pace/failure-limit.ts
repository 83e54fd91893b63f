import { setTimeout as sleep } from 'node:timers/promises';
import type { Store } from 'express-rate-limit';
import { keyPart } from '../storage/redis-key.ts';
import type { Attempt, AttemptCounts, Attempts, AttemptsOptions } from './attempts.ts';
import { type RequestLimit, type RequestLimitOptions, tooManyAttempts } from './request-limits.ts';
import { waitingLines } from './waiting-lines.ts';

/** How often the first in line asks whether an attempt of its key is over, in ms: the others may be at other instances. */
const ASK_AGAIN_MS = 50;

export interface FailureLimitOptions extends AttemptsOptions {
  /** What a client is told that is refused. */
  readonly detail: string;
}

/** A limit on attempts that fail. */
export interface FailureLimit {
  /** Refuses a request of a key whose attempts have failed too often. @throws Problem `too_many_attempts` */
  readonly refuse: RequestLimit;
  /**
   * Begins an attempt of `key`; waits while only others under way keep it out, in the order in which they came.
   * @throws Problem `too_many_attempts` if so many have failed; the signal's reason if it aborts while this waits
   */
  begin(key: string, signal: AbortSignal): Promise<Attempt>;
}

/**
 * A limit whose attempts are counted in `counts`. express-rate-limit refuses for what has failed; what is under way
 * is counted beside it: the library counts a request as it comes, and cannot tell one under way from one that failed.
 */
export function failureLimit(
  limit: (options: RequestLimitOptions) => RequestLimit,
  counts: AttemptCounts,
  { name, maxFailures, windowMs, detail }: FailureLimitOptions,
): FailureLimit {
  const attempts = counts({ name, maxFailures, windowMs });
  const lines = waitingLines();

  /** Undefined if it must wait. */
  async function begun(key: string): Promise<Attempt | undefined> {
    const answer = await attempts.begin(key);
    if (answer.state === 'refused') throw tooManyAttempts(detail, answer.resetMs);
    return answer.state === 'begun' ? answer.attempt : undefined;
  }

  return {
    refuse: limit({ name, limit: maxFailures, windowMs, detail, store: failuresStore(attempts) }),
    async begin(whose, signal) {
      const key = keyPart(whose);
      const atOnce = await begun(key);
      if (atOnce) return atOnce;
      const leave = await lines.enter(key, signal);
      try {
        for (;;) {
          const attempt = await begun(key);
          if (attempt) return attempt;
          await sleep(ASK_AGAIN_MS, undefined, { signal }).catch(() => signal.throwIfAborted());
        }
      } finally {
        leave();
      }
    },
  };
}

/** The store of express-rate-limit that says what a failure of this request would make; only `failed` counts one. */
function failuresStore(attempts: Attempts): Store {
  return {
    async increment(key) {
      const { count, resetMs } = await attempts.failures(key);
      return { totalHits: count + 1, resetTime: new Date(Date.now() + resetMs) };
    },
    decrement() {},
    resetKey() {},
  };
}
