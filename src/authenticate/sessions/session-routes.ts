import type { RequestHandler } from 'express';
import { Problem } from '../../errors.ts';
import type { LiveSession } from '../../http/locals.ts';
import { describeSession, stored } from './begin-session.ts';
import { letGoOfSession } from './require-session.ts';
import { isLive, type ProviderSession } from './session-data.ts';
import type { SessionStore } from './session-store.ts';

/** `GET /auth/session`: whose session it is and how long it lasts. Never extends it. */
export function showSession(): RequestHandler {
  return function showSession(req, res) {
    const { session } = req;
    letGoOfSession(req);
    if (!isLive(session, Date.now())) throw new Problem('unauthenticated', 'You are not signed in.');
    res.json(describeSession(session));
  };
}

interface Cookie {
  readonly name: string;
  readonly flags: object;
}

/** What a client is told whose session is over, if anything. */
export type Farewell = (session: ProviderSession) => Promise<object>;

/**
 * `POST /auth/logout`: the session is removed, and its cookie. What is open of it ends as the store tells.
 * @throws Problem `session_store_unavailable`
 */
export function logout({ name, flags }: Cookie, farewell?: Farewell): RequestHandler {
  return async function logout(req, res) {
    const { session } = req;
    letGoOfSession(req);
    await stored((done) => session.destroy(done));
    res.clearCookie(name, flags);
    if (farewell) res.json(await farewell(session));
    else res.status(204).end();
  };
}

/**
 * `POST /auth/logout-all`: removes all sessions of the user, this one too, and its cookie. What is open of them
 * ends as the store tells.
 * @throws Problem `session_store_unavailable`
 */
export function logoutAll(sessions: SessionStore, { name, flags }: Cookie): RequestHandler {
  return async function logoutAll(req, res) {
    const { session } = req;
    letGoOfSession(req);
    await sessions.removeUser((res.locals.session as LiveSession).user.id);
    // Should the store's list of the user's sessions be lost, at least this one ends.
    await stored((done) => session.destroy(done));
    res.clearCookie(name, flags);
    res.status(204).end();
  };
}
