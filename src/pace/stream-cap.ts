import type { RequestHandler } from 'express';
import { Problem } from '../errors.ts';
import type { Holders } from '../http/locals.ts';
import type { StreamLeases } from './stream-leases.ts';

/** How many messages may be open or waiting at once. */
export interface StreamCaps {
  readonly perUser: number;
  /** Those of all guests from one address. */
  readonly perAddress: number;
}

/**
 * Lets a user hold at most `perUser` messages open or waiting at once, and all guests from one address at most
 * `perAddress`, as `leases` counts them.
 * @throws Problem `too_many_streams`; `session_store_unavailable` where nobody can tell
 */
export function streamCap(leases: StreamLeases, { perUser, perAddress }: StreamCaps): RequestHandler {
  return async function streamCap(_req, res, next) {
    const { user, address } = res.locals.holders as Holders;
    const take = async (holder: string, max: number, whose: string) => {
      const lease = await leases.acquire(holder, max);
      if (!lease) throw new Problem('too_many_streams', `${whose} ${max} open streams.`, { retryAfter: 1 });
      // The client may have left meanwhile: nothing would tell that again.
      if (res.closed) lease.release();
      else res.once('close', lease.release);
    };
    await take(user, perUser, 'You already have');
    if (address !== undefined && !res.closed)
      await take(address, perAddress, 'Guests from here already have');
    if (!res.closed) next();
  };
}
