import type { IncomingHttpHeaders } from 'node:http';
import type { ProviderSession } from '../authenticate/sessions/session.ts';
import { describeSession, type Sessions } from '../authenticate/sessions/sessions.ts';
import { Problem } from '../errors.ts';
import type { LimitByAddress } from '../pace/client-limits.ts';
import type { RequestLimit } from '../pace/request-limits.ts';
import type { Steps } from './route.ts';

export interface SessionRoutes {
  readonly limitByAddress: LimitByAddress;
  readonly limitBySession: RequestLimit;
  readonly checkOrigin: (headers: IncomingHttpHeaders) => void;
  readonly sessions: Sessions;
  /** What a client is told whose session is over, if anything. */
  readonly farewell?: ((session: ProviderSession) => Promise<object>) | undefined;
}

/** `GET /auth/session`: whose session it is and how long it lasts. Never extends it. */
export function showSession({ limitByAddress, limitBySession, sessions }: SessionRoutes): Steps {
  return async function showSession(req, res) {
    await limitByAddress(req, res);
    const session = await sessions.find(req);
    if (!session) throw new Problem('unauthenticated', 'You are not signed in.');
    res.locals.userId = session.user.id;
    await limitBySession(req, res, session.key);
    res.json(describeSession(session));
  };
}

/**
 * `POST /auth/logout`: the session is removed, and its cookie. What is open of it ends as the store tells.
 * Not limited by session: it works only once.
 */
export function logout({ limitByAddress, checkOrigin, sessions, farewell }: SessionRoutes): Steps {
  return async function logout(req, res) {
    await limitByAddress(req, res);
    checkOrigin(req.headers);
    const session = await sessions.require(req);
    res.locals.userId = session.user.id;
    await sessions.end(session, res);
    if (farewell) res.json(await farewell(session));
    else res.status(204).end();
  };
}

/**
 * `POST /auth/logout-all`: removes all sessions of the user, this one too, and its cookie. What is open of them
 * ends as the store tells.
 */
export function logoutAll({ limitByAddress, checkOrigin, sessions }: SessionRoutes): Steps {
  return async function logoutAll(req, res) {
    await limitByAddress(req, res);
    checkOrigin(req.headers);
    const session = await sessions.require(req);
    res.locals.userId = session.user.id;
    await sessions.endAll(session, res);
    res.status(204).end();
  };
}
