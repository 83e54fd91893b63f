import type { ErrorRequestHandler, Request, RequestHandler, Response } from 'express';
import { Problem } from '../../errors.ts';
import type { LiveSession } from '../../http/locals.ts';
import { extendedIdleLimit, isLive, type SessionLimits, type SignedIn } from './session-data.ts';
import { sessionKey } from './session-key.ts';
import type { SessionStore } from './session-store.ts';
import type { SessionWatch } from './session-watch.ts';

/**
 * Lets only a live session pass, as `res.locals.session`. Never a redirect and never `WWW-Authenticate`,
 * whatever the request accepts: a script is asking, and a browser must not show a login box of its own.
 * @throws Problem `unauthenticated`
 */
export function requireSession(): RequestHandler {
  return function requireSession(req, res, next) {
    const { session } = req;
    if (!isLive(session, Date.now())) throw noSession();
    rememberSession(req, res, session);
    next();
  };
}

/** Sets `res.locals.session` to the session that `req` has. */
export function rememberSession(req: Request, res: Response, { user }: SignedIn): void {
  res.locals.session = { id: sessionKey(req.sessionID), user };
}

export interface ExtendSessionOptions {
  readonly sessions: SessionStore;
  readonly limits: SessionLimits;
  readonly watch: SessionWatch;
}

/**
 * Extends the live session, which `requireSession` has found, and lets go of it: express-session's work at
 * the end of an answer would delay the end of a stream while the store stalls. Stands behind `openMessage`, and
 * asks whether the session still lives: a logout before this is seen here, and one after it ends the open message.
 * @throws Problem `unauthenticated` if it does not, or `session_store_unavailable`
 */
export function extendSession({ sessions, limits, watch }: ExtendSessionOptions): RequestHandler {
  return async function extendSession(req, res, next) {
    const session = req.session as SignedIn;
    letGoOfSession(req);
    const wanted = extendedIdleLimit(session, limits, Date.now());
    const idleExpiresAt = await sessions.extend((res.locals.session as LiveSession).id, wanted);
    if (typeof idleExpiresAt !== 'number') throw noSession();
    watch.follow(res, { ...session, idleExpiresAt });
    next();
  };
}

function noSession(): Problem {
  return new Problem('unauthenticated', 'You are not signed in. Sign in and try again.');
}

/** Keeps the end of the answer from writing or extending the session (express-session, `unset: 'keep'`). */
export function letGoOfSession(req: Request): void {
  (req as { session: unknown }).session = null;
}

/**
 * Lets go of the session of every request that failed, at whichever stage: a refusal neither waits for the store
 * nor writes to it.
 */
export function letGoWhenRefused(): ErrorRequestHandler {
  return function letGoWhenRefused(error: unknown, req, _res, next) {
    letGoOfSession(req);
    next(error);
  };
}
