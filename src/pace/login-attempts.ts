import { availableParallelism } from 'node:os';
import type { Request, Response } from 'express';
import type { Attempt, AttemptCounts } from './attempts.ts';
import { type FailureLimit, failureLimit } from './failure-limit.ts';
import { fewAtOnce } from './few-at-once.ts';
import type { RequestLimit, RequestLimitOptions } from './request-limits.ts';
import { busy, signInPlaces } from './sign-in-places.ts';

/**
 * How many passwords are checked at once. Each keeps a core busy for a fifth of a second, and one core is left for the
 * streams; and each keeps one of the runtime's four threads, on which the names of new connections to the bot service
 * are looked up and files are read.
 */
const CHECKED_AT_ONCE = Math.max(1, Math.min(2, availableParallelism() - 1));
/** Long enough for a machine that has more to do; shorter than load balancers wait for an answer. */
const MAX_WAIT_MS = 30_000;

export interface LoginAttemptsOptions {
  /** So many failures of one account within `windowMs` are enough. */
  readonly maxFailures: number;
  /** So many from one address are. */
  readonly maxFailuresPerAddress: number;
  readonly windowMs: number;
  /** How long a sign-in may wait for its turn. */
  readonly maxWaitMs?: number;
  readonly checkedAtOnce?: number;
}

/** Whom a sign-in counts for. */
export interface SignInBy {
  readonly address: string;
  readonly account: string;
}

/** Sign-ins with a password. */
export interface LoginAttempts {
  /** Refuses at once: where too many have failed, and where too many wait. @throws Problem `too_many_attempts` or `busy` */
  refuse(req: Request, res: Response, by: SignInBy): Promise<void>;
  /**
   * Runs `check` when the turn of this sign-in comes. It counts as failed if there is no result.
   * @throws Problem `too_many_attempts`, `busy` or `session_store_unavailable`; the reason of `left`, if that aborts before
   */
  attempt<T>(by: SignInBy, check: () => Promise<T | undefined>, left: AbortSignal): Promise<T | undefined>;
}

/**
 * Two limits on failed sign-ins, by address and by account, and a queue with a bound. While a limit is reached, the
 * right password is refused too. Whoever is kept out only by sign-ins under way waits in the queue. A password that
 * was checked and found wrong counts, whether or not its client has waited for the answer.
 */
export function loginAttempts(
  limit: (options: RequestLimitOptions) => RequestLimit,
  counts: AttemptCounts,
  options: LoginAttemptsOptions,
): LoginAttempts {
  const { maxFailures, maxFailuresPerAddress, windowMs } = options;
  const { maxWaitMs = MAX_WAIT_MS, checkedAtOnce = CHECKED_AT_ONCE } = options;
  const failures = (name: string, most: number) =>
    failureLimit(limit, counts, {
      name,
      maxFailures: most,
      windowMs,
      detail: 'Too many failed sign-ins; wait and try again.',
    });
  const limits: Limits = {
    byAddress: failures('login-address', maxFailuresPerAddress),
    byAccount: failures('login-account', maxFailures),
  };
  const places = signInPlaces();
  const inTurn = fewAtOnce(checkedAtOnce);

  return {
    async refuse(req, res, { address, account }) {
      places.refuseIfFull(address);
      // The address first: it bounds how many account names one client can make this remember.
      await limits.byAddress.refuse(req, res, address);
      await limits.byAccount.refuse(req, res, account);
    },
    async attempt(by, check, left) {
      left.throwIfAborted();
      const leave = places.take(by.address);
      const tooLong = new AbortController();
      const timer = setTimeout(() => tooLong.abort(busy()), maxWaitMs);
      const signal = AbortSignal.any([left, tooLong.signal]);
      try {
        return await counted(limits, { ...by, signal }, () => inTurn(check, signal));
      } finally {
        clearTimeout(timer);
        leave();
      }
    },
  };
}

interface Limits {
  readonly byAddress: FailureLimit;
  readonly byAccount: FailureLimit;
}

/** A sign-in, and what ends its waiting. */
interface SignIn extends SignInBy {
  readonly signal: AbortSignal;
}

/** Runs `check` as an attempt of both limits. It counts as failed if there is no result. */
async function counted<T>(
  { byAddress, byAccount }: Limits,
  { address, account, signal }: SignIn,
  check: () => Promise<T | undefined>,
): Promise<T | undefined> {
  const attempts: Attempt[] = [];
  try {
    attempts.push(await byAddress.begin(address, signal));
    attempts.push(await byAccount.begin(account, signal));
    const result = await check();
    if (result === undefined) await Promise.all(attempts.map((attempt) => attempt.failed()));
    return result;
  } finally {
    for (const attempt of attempts) attempt.end();
  }
}
