import type { Store } from 'express-rate-limit';
import { keyPart } from '../storage/redis-key.ts';
import { abortableSleep } from './abortable-sleep.ts';
import type { AttemptCounts, Attempts, AttemptsOptions, CountedAttempt } from './attempts.ts';
import { createQueues } from './queues.ts';
import { type LimitByKey, type RequestLimitOptions, tooManyAttempts } from './request-limits.ts';

/** How often the first in the queue asks whether it may begin, in ms: the running attempts may be at other instances. */
const POLL_MS = 50;

export interface FailureLimitOptions extends AttemptsOptions {
  /** What a refused client is told. */
  readonly detail: string;
}

/** A limit on attempts that fail. */
export interface FailureLimit {
  /** Refuses a request whose key has too many failed attempts. @throws Problem `too_many_attempts` */
  readonly refuse: LimitByKey;
  /**
   * Begins an attempt of `subject`. It waits, in the order of the calls, while running attempts take all places.
   * @throws Problem `too_many_attempts` if too many have failed; the signal's reason if it aborts during the wait
   */
  begin(subject: string, signal: AbortSignal): Promise<CountedAttempt>;
}

/**
 * A limit whose attempts are counted in `counts`. express-rate-limit refuses because of failed attempts only. Running
 * attempts are counted here, since the library cannot distinguish a running attempt from a failed one.
 */
export function failureLimit(
  limit: (options: RequestLimitOptions) => LimitByKey,
  counts: AttemptCounts,
  { name, maxFailures, windowMs, detail }: FailureLimitOptions,
): FailureLimit {
  const attempts = counts({ name, maxFailures, windowMs });
  const queues = createQueues();

  /** Undefined if the attempt must wait. */
  async function tryBegin(key: string): Promise<CountedAttempt | undefined> {
    const answer = await attempts.begin(key);
    if (answer.state === 'refused') throw tooManyAttempts(detail, answer.resetMs);
    return answer.state === 'begun' ? answer.attempt : undefined;
  }

  return {
    refuse: limit({ name, limit: maxFailures, windowMs, detail, store: failuresStore(attempts) }),
    async begin(subject, signal) {
      const key = keyPart(subject);
      const first = await tryBegin(key);
      if (first) return first;
      const leave = await queues.enter(key, signal);
      try {
        for (;;) {
          const attempt = await tryBegin(key);
          if (attempt) return attempt;
          await abortableSleep(POLL_MS, signal);
        }
      } finally {
        leave();
      }
    },
  };
}

/** A store for express-rate-limit that reads the failures and adds none: only `failed` of an attempt counts one. */
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
