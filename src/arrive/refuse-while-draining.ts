import type { RequestHandler } from 'express';
import { Problem } from '../errors.ts';

/**
 * Once the listener is closed, a request on a kept connection is refused and the connection closed with it,
 * so that the load balancer sends it elsewhere.
 * @throws Problem `draining`
 */
export function refuseWhileDraining(isDraining: () => boolean): RequestHandler {
  return function refuseWhileDraining(_req, _res, next) {
    if (isDraining()) {
      throw new Problem('draining', 'This instance is shutting down; try again.', {
        retryAfter: 1,
        headers: { Connection: 'close' },
      });
    }
    next();
  };
}
