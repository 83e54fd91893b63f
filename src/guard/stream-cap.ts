import type { RequestHandler } from 'express';
import { Problem } from '../errors.ts';
import type { LiveSession } from '../locals.ts';
import type { StreamLeases } from './stream-leases.ts';

/**
 * Lets one session hold at most `max` messages open or waiting at once, as `leases` counts them.
 * @throws Problem `too_many_streams`; `session_store_unavailable` where nobody can tell
 */
export function streamCap(leases: StreamLeases, max: number): RequestHandler {
  return async function streamCap(_req, res, next) {
    const { id } = res.locals.session as LiveSession;
    const lease = await leases.acquire(id);
    if (!lease) {
      throw new Problem('too_many_streams', `This session has ${max} open streams already.`, {
        retryAfter: 1,
      });
    }
    // The client may have left meanwhile: nothing would tell that again.
    if (res.closed) return lease.release();
    res.once('close', lease.release);
    next();
  };
}
