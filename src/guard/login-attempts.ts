import { availableParallelism } from 'node:os';
import type { Request, RequestHandler, Response } from 'express';
import { Problem } from '../errors.ts';
import type { Attempt, AttemptCounts } from './attempts.ts';
import { failureLimit } from './failure-limit.ts';
import { fewAtOnce } from './few-at-once.ts';
import type { RequestLimit } from './request-limits.ts';

/**
 * How many passwords are checked at once. Each keeps a core busy for a fifth of a second, and one core is left for the
 * streams; and each keeps one of the runtime's four threads, on which the names of new connections to the bot service
 * are looked up and files are read.
 */
const CHECKED_AT_ONCE = Math.max(1, Math.min(2, availableParallelism() - 1));
/** How many sign-ins wait or are checked. */
const MAX_SIGN_INS = 100;
/** How many of them come from one address, so that others find a place. */
const MAX_FROM_ONE_ADDRESS = 75;
/** In about this time half of them are done. */
const RETRY_AFTER_SECONDS = 10;
/** Long enough for a machine that has more to do; shorter than load balancers wait for an answer. */
const MAX_WAIT_MS = 30_000;

export interface LoginAttemptsOptions {
  /** So many failures of one account within `windowMs` are enough. */
  readonly maxFailures: number;
  /** So many from one address are. */
  readonly maxFailuresPerAddress: number;
  readonly windowMs: number;
  readonly addressOf: (req: Request) => string;
  /** Stands behind the body, in which this finds the account's name. */
  readonly accountOf: (req: Request, res: Response) => string;
  /** How long a sign-in may wait for its turn. */
  readonly maxWaitMs?: number;
  readonly checkedAtOnce?: number;
}

/** Sign-ins with a password. */
export interface LoginAttempts {
  /** The stages that refuse at once: where too many have failed, and where too many wait. @throws Problem `too_many_attempts` or `busy` */
  readonly refuse: readonly RequestHandler[];
  /**
   * Runs `check` when the turn of this sign-in comes. It counts as failed if there is no result.
   * @throws Problem `too_many_attempts`, `busy` or `session_store_unavailable`; anything if the client has left
   */
  attempt: PasswordAttempt;
}

export type PasswordAttempt = <T>(
  req: Request,
  res: Response,
  check: () => Promise<T | undefined>,
) => Promise<T | undefined>;

/**
 * Two limits on failed sign-ins, by address and by account, and a queue with a bound. While a limit is reached, the
 * right password is refused too. Whoever is kept out only by sign-ins under way waits in the queue. A password that
 * was checked and found wrong counts, whether or not its client has waited for the answer.
 */
export function loginAttempts(
  limit: RequestLimit,
  counts: AttemptCounts,
  options: LoginAttemptsOptions,
): LoginAttempts {
  const { maxFailures, maxFailuresPerAddress, windowMs, addressOf, accountOf } = options;
  const { maxWaitMs = MAX_WAIT_MS, checkedAtOnce = CHECKED_AT_ONCE } = options;
  const common = { windowMs, detail: 'Too many failed sign-ins; wait and try again.' };
  const byAddress = {
    ...common,
    name: 'login-address',
    maxFailures: maxFailuresPerAddress,
    keyOf: addressOf,
  };
  const byAccount = { ...common, name: 'login-account', maxFailures, keyOf: accountOf };
  // The address first: it bounds how many account names one client can make this remember.
  const limits = [byAddress, byAccount].map((one) => failureLimit(limit, counts, one));
  const inTurn = fewAtOnce(checkedAtOnce);
  /** The address of each that waits or is checked. */
  const signIns: string[] = [];
  const refuseIfFull = (address: string) => {
    const fromThere = signIns.filter((other) => other === address).length;
    if (signIns.length >= MAX_SIGN_INS || fromThere >= MAX_FROM_ONE_ADDRESS) throw busy();
  };

  return {
    refuse: [
      (req, _res, next) => {
        refuseIfFull(addressOf(req));
        next();
      },
      ...limits.map(({ refuse }) => refuse),
    ],
    async attempt(req, res, check) {
      const address = addressOf(req);
      refuseIfFull(address);
      signIns.push(address);
      const { signal, clear } = patience(res, maxWaitMs);
      const attempts: Attempt[] = [];
      try {
        for (const { begin } of limits) attempts.push(await begin(req, res, signal));
        const result = await inTurn(check, signal);
        if (result === undefined) await Promise.all(attempts.map((attempt) => attempt.failed()));
        return result;
      } finally {
        for (const attempt of attempts) attempt.end();
        clear();
        signIns.splice(signIns.indexOf(address), 1);
      }
    },
  };
}

/** Aborts when the client leaves, or has waited for too long. */
function patience(res: Response, maxWaitMs: number): { readonly signal: AbortSignal; clear(): void } {
  const controller = new AbortController();
  const leave = () => controller.abort();
  const timer = setTimeout(() => controller.abort(busy()), maxWaitMs);
  if (res.closed) leave();
  res.once('close', leave);
  return {
    signal: controller.signal,
    clear() {
      clearTimeout(timer);
      res.off('close', leave);
    },
  };
}

function busy(): Problem {
  const detail = 'Too many people sign in at this moment; wait and try again.';
  return new Problem('busy', detail, { retryAfter: RETRY_AFTER_SECONDS });
}
