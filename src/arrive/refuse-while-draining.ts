import type { RequestHandler } from 'express';
import { Problem } from '../errors.ts';

/**
 * While the relay drains, refuses requests on connections that are still open, and closes the connection, so that the
 * load balancer sends the next request to another instance.
 * @throws Problem `draining`
 */
export function refuseWhileDraining(isDraining: () => boolean): RequestHandler {
  return function refuseWhileDraining(_req, _res, next) {
    if (isDraining()) {
      throw new Problem('draining', 'This instance is shutting down. Try again.', {
        retryAfter: 1,
        headers: { Connection: 'close' },
      });
    }
    next();
  };
}
