import { availableParallelism } from 'node:os';
import type { Request, Response } from 'express';
import { Problem } from '../errors.ts';
import { ACCOUNT_ATTEMPTS, type AttemptCounts, type CountedAttempt } from './attempts.ts';
import { type FailureLimit, failureLimit } from './failure-limit.ts';
import { limitConcurrency } from './queues.ts';
import { type LimitByKey, type RequestLimitOptions, SIGN_IN_WINDOW_MS } from './request-limits.ts';

/**
 * How many passwords are checked at once. Each check keeps a core busy for 0.2 s, and one core is left for the
 * streams. Each check also takes one of the runtime's four threads, which look up host names and read files as well.
 */
const MAX_CONCURRENT_CHECKS = Math.max(1, Math.min(2, availableParallelism() - 1));
/** How long a sign-in waits at most, in ms. Load balancers wait longer than this for an answer. */
const MAX_WAIT_MS = 30_000;

interface LoginAttemptsOptions {
  /** How many sign-ins of one account may fail within `windowMs`. */
  readonly maxFailures: number;
  /** How many sign-ins from one address may fail within `windowMs`. */
  readonly maxFailuresPerAddress: number;
  readonly windowMs?: number;
  /** How long a sign-in may wait for its turn, in ms. */
  readonly maxWaitMs?: number;
  readonly maxConcurrentChecks?: number;
}

/** For which address and which account a sign-in counts. */
interface SignInSource {
  readonly address: string;
  readonly account: string;
}

/** Sign-ins with a password. */
export interface LoginAttempts {
  /** Refuses if too many have failed or too many wait. @throws Problem `too_many_attempts` or `busy` */
  refuse(req: Request, res: Response, source: SignInSource): Promise<void>;
  /**
   * Runs `check` when it is the turn of this sign-in. Without a result, the sign-in counts as failed.
   * @throws Problem `too_many_attempts`, `busy` or `session_store_unavailable`; the signal's reason, if that aborts first
   */
  attempt<T>(
    source: SignInSource,
    check: () => Promise<T | undefined>,
    signal: AbortSignal,
  ): Promise<T | undefined>;
}

/**
 * Two limits on failed sign-ins, by address and by account, and a queue of limited length. Over a limit, a correct
 * password is refused too. A sign-in waits in the queue while running sign-ins take the last places of a limit. A wrong
 * password counts even if its client did not wait for the answer.
 */
export function loginAttempts(
  limit: (options: RequestLimitOptions) => LimitByKey,
  counts: AttemptCounts,
  options: LoginAttemptsOptions,
): LoginAttempts {
  const { maxFailures, maxFailuresPerAddress, windowMs = SIGN_IN_WINDOW_MS } = options;
  const { maxWaitMs = MAX_WAIT_MS, maxConcurrentChecks = MAX_CONCURRENT_CHECKS } = options;
  const createLimit = (name: string, max: number) =>
    failureLimit(limit, counts, {
      name,
      maxFailures: max,
      windowMs,
      detail: 'Too many failed sign-ins; wait and try again.',
    });
  const limits: Limits = {
    byAddress: createLimit('login-address', maxFailuresPerAddress),
    byAccount: createLimit(ACCOUNT_ATTEMPTS, maxFailures),
  };
  const places = signInPlaces();
  const runLimited = limitConcurrency(maxConcurrentChecks);

  return {
    async refuse(req, res, { address, account }) {
      places.refuseIfFull(address);
      // The address comes first: it limits how many account names one client can have counted.
      await limits.byAddress.refuse(req, res, address);
      await limits.byAccount.refuse(req, res, account);
    },
    async attempt(source, check, clientLeft) {
      clientLeft.throwIfAborted();
      const release = places.take(source.address);
      const tooLong = new AbortController();
      const timer = setTimeout(() => tooLong.abort(busy()), maxWaitMs);
      const signal = AbortSignal.any([clientLeft, tooLong.signal]);
      try {
        return await runCounted(limits, { ...source, signal }, () => runLimited(check, signal));
      } finally {
        clearTimeout(timer);
        release();
      }
    },
  };
}

interface Limits {
  readonly byAddress: FailureLimit;
  readonly byAccount: FailureLimit;
}

/** A sign-in, and the signal that ends its wait. */
interface WaitingSignIn extends SignInSource {
  readonly signal: AbortSignal;
}

/** Runs `check` as an attempt of both limits. Without a result, it counts as failed. */
async function runCounted<T>(
  { byAddress, byAccount }: Limits,
  { address, account, signal }: WaitingSignIn,
  check: () => Promise<T | undefined>,
): Promise<T | undefined> {
  const attempts: CountedAttempt[] = [];
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

/** Places for sign-ins that wait or whose password is being checked. */
interface SignInPlaces {
  /** @throws Problem `busy` if there is no place for one more from `address` */
  refuseIfFull(address: string): void;
  /** Takes a place; returns the function that gives it back; call it once. @throws Problem `busy` if there is none */
  take(address: string): () => void;
}

/** How many sign-ins may wait or be checked at once. */
const MAX_SIGN_INS = 100;
/** How many of them may come from one address, so that others find a place. */
const MAX_FROM_ONE_ADDRESS = 75;
/** About half of the sign-ins are done after this time. */
const RETRY_AFTER_SECONDS = 10;

/** The places of this process. */
function signInPlaces(): SignInPlaces {
  /** The address of each sign-in. */
  const signIns: string[] = [];

  function refuseIfFull(address: string): void {
    const fromAddress = signIns.filter((other) => other === address).length;
    if (signIns.length >= MAX_SIGN_INS || fromAddress >= MAX_FROM_ONE_ADDRESS) throw busy();
  }

  return {
    refuseIfFull,
    take(address) {
      refuseIfFull(address);
      signIns.push(address);
      return () => void signIns.splice(signIns.indexOf(address), 1);
    },
  };
}

/** The problem for a sign-in that finds no place, or waits too long. */
function busy(): Problem {
  const detail = 'Too many people are signing in right now; wait and try again.';
  return new Problem('busy', detail, { retryAfter: RETRY_AFTER_SECONDS });
}
