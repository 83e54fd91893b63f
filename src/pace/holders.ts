import type { RequestHandler } from 'express';
import { clientAddress } from '../http/client-address.ts';
import type { LiveSession } from '../http/locals.ts';
import { keyPart } from '../storage/redis-key.ts';

export interface HoldersOptions {
  /** Where users are known: the same id is somebody else elsewhere. */
  readonly realm: string;
  readonly guests: boolean;
}

/** Sets `res.locals.holders`. Stands behind the session. */
export function nameHolders({ realm, guests }: HoldersOptions): RequestHandler {
  return function nameHolders(req, res, next) {
    const { user } = res.locals.session as LiveSession;
    res.locals.holders = {
      user: keyPart(`${realm} ${user.id}`),
      ...(guests && { address: keyPart(`address ${clientAddress(req)}`) }),
    };
    next();
  };
}
