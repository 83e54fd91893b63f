import { randomUUID } from 'node:crypto';
import type { Request, RequestHandler } from 'express';
import { Problem } from '../../errors.ts';
import { beginSession, describeSession, sendSession } from '../sessions/begin-session.ts';
import { letGoOfSession } from '../sessions/require-session.ts';
import {
  extendedIdleLimit,
  liveSessionKey,
  type SessionLimits,
  type SignedIn,
} from '../sessions/session-data.ts';
import type { SessionStore } from '../sessions/session-store.ts';

/** Whoever asks for the first guest session from here; undefined for a guest who has one and goes on with it. */
export function newGuestOf(addressOf: (req: Request) => string): (req: Request) => string | undefined {
  return (req) => (liveSessionKey(req) === undefined ? addressOf(req) : undefined);
}

/**
 * `POST /auth/guest`: a session for an anonymous visitor, whose id is random and stays for as long as the session. A
 * guest who has one keeps it, and it is extended.
 * @throws Problem `session_store_unavailable`
 */
export function guest(sessions: SessionStore, limits: SessionLimits): RequestHandler {
  return async function guest(req, res) {
    const key = liveSessionKey(req);
    const session = req.session as unknown as SignedIn;
    if (key !== undefined) {
      letGoOfSession(req);
      const wanted = extendedIdleLimit(session, limits, Date.now());
      const idleExpiresAt = await sessions.extend(key, wanted);
      if (typeof idleExpiresAt !== 'number')
        throw new Problem('unauthenticated', 'The session has ended; try again.');
      res.json(describeSession({ ...session, idleExpiresAt }));
      return;
    }
    const user = { id: `guest:${randomUUID()}`, name: 'Guest' };
    sendSession(req, res, await beginSession(req, res, { user, limits }));
  };
}
