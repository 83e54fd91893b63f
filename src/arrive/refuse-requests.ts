import type { RequestHandler } from 'express';
import { Problem } from '../errors.ts';
import type { ConnectionBounds } from './connection-bounds.ts';

/**
 * While the relay drains, refuses requests on connections that are still open, and closes the connection, so that the
 * load balancer sends the next request to another instance. `exceptPaths`, its probes, are still served.
 * @throws Problem `draining`
 */
export function refuseWhileDraining(
  isDraining: () => boolean,
  exceptPaths: readonly string[],
): RequestHandler {
  const exempt = new Set(exceptPaths);
  return function refuseWhileDraining(req, _res, next) {
    if (isDraining() && !exempt.has(req.path)) {
      throw new Problem('draining', 'This instance is shutting down. Try again.', {
        retryAfter: 1,
        headers: { Connection: 'close' },
      });
    }
    next();
  };
}

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
