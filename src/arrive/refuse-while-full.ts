import type { RequestHandler } from 'express';
import { Problem } from '../errors.ts';
import type { ConnectionBounds } from './connection-bounds.ts';

/**
 * Refuses requests on a connection that is reserved for a probe, and closes it after any answer. `exceptPaths` are
 * served: the probes.
 * @throws Problem `busy`
 */
export function refuseWhileFull(
  { isReserved }: ConnectionBounds,
  exceptPaths: readonly string[],
): RequestHandler {
  const exempt = new Set(exceptPaths);
  return function refuseWhileFull(req, res, next) {
    if (isReserved(req.socket)) {
      res.setHeader('Connection', 'close');
      if (!exempt.has(req.path))
        throw new Problem('busy', 'The relay has too many connections. Try again.', { retryAfter: 1 });
    }
    next();
  };
}
