import type { IncomingHttpHeaders } from 'node:http';
import type { ProviderSession } from '../authenticate/sessions/session.ts';
import { describeSession, type Sessions } from '../authenticate/sessions/sessions.ts';
import type { LimitByAddress, LimitByKey } from '../pace/request-limits.ts';
import type { Steps } from './route.ts';

export interface SessionRoutes {
  readonly limitByAddress: LimitByAddress;
  readonly limitBySession: LimitByKey;
  readonly checkOrigin: (headers: IncomingHttpHeaders) => void;
  readonly sessions: Sessions;
  /** The body with which a logout answers; without it a logout answers 204. */
  readonly logoutAnswer?: ((session: ProviderSession) => Promise<object>) | undefined;
}

/** The answer if nobody is signed in. It is no refusal: browsers write each of those into the console. */
const NOBODY = { user: null };

/** `GET /auth/session`: the user and the limits of the session; `user` is null without one. Does not extend it. */
export function showSession({ limitByAddress, limitBySession, sessions }: SessionRoutes): Steps {
  return async function showSession(req, res) {
    await limitByAddress(req, res);
    const session = await sessions.find(req);
    if (!session) return void res.json(NOBODY);
    res.locals.userId = session.user.id;
    await limitBySession(req, res, session.key);
    res.json((await sessions.hasEnded(session)) ? NOBODY : describeSession(session));
  };
}

/**
 * `POST /auth/logout`: removes the session and its cookie. Its open messages end by the store's `RemovalListener`.
 * There is no limit by session, since it succeeds only once for each.
 */
export function logout({ limitByAddress, checkOrigin, sessions, logoutAnswer }: SessionRoutes): Steps {
  return async function logout(req, res) {
    await limitByAddress(req, res);
    checkOrigin(req.headers);
    const session = await sessions.require(req);
    res.locals.userId = session.user.id;
    await sessions.end(session, res);
    if (logoutAnswer) res.json(await logoutAnswer(session));
    else res.status(204).end();
  };
}

/**
 * `POST /auth/logout-all`: removes all sessions of the user, this one too, and its cookie. Their open messages end by
 * the store's `RemovalListener`.
 */
export function logoutAll({ limitByAddress, checkOrigin, sessions }: SessionRoutes): Steps {
  return async function logoutAll(req, res) {
    await limitByAddress(req, res);
    checkOrigin(req.headers);
    const session = await sessions.require(req);
    res.locals.userId = session.user.id;
    // Also for a session that is removed already: this completes a removal that has failed in part.
    await sessions.endAll(session, res);
    res.status(204).end();
  };
}
