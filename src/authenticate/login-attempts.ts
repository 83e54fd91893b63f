import type { Request, RequestHandler, Response } from 'express';
import type { RequestLimit } from '../guard/request-limits.ts';

export interface LoginAttemptsOptions {
  /** So many failures of one account, or from one address, within `windowMs` are enough. */
  readonly maxFailures: number;
  readonly windowMs: number;
  readonly addressOf: (req: Request) => string;
  /** Stands behind the body, in which this finds the account's name. */
  readonly accountOf: (req: Request, res: Response) => string;
}

/**
 * Two limits on failed sign-ins: one by address and one by account. While either is reached, the right
 * password is refused too. An attempt that is still under way counts as failed. What is not a failed sign-in is
 * taken back: a right password, a fault, a client that left.
 * @throws Problem `too_many_attempts`
 */
export function loginAttempts(limit: RequestLimit, options: LoginAttemptsOptions): RequestHandler[] {
  const { maxFailures, windowMs, addressOf, accountOf } = options;
  const failures = (name: string, keyOf: (req: Request, res: Response) => string) =>
    limit({
      name,
      limit: maxFailures,
      windowMs,
      keyOf,
      detail: 'Too many failed sign-ins; wait and try again.',
      countsIf: ({ locals }) => locals.outcome === 'invalid_credentials',
    });
  // The address first: it bounds how many account names one client can make this remember.
  return [failures('login-address', addressOf), failures('login-account', accountOf)];
}
