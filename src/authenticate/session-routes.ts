import type { Request, RequestHandler, Response } from 'express';
import { z } from 'zod';
import { Problem } from '../errors.ts';
import type { LiveSession } from '../locals.ts';
import { storeUnavailable } from './attach-session.ts';
import { fewAtOnce } from './few-at-once.ts';
import { letGoOfSession, rememberSession } from './require-session.ts';
import { isLive, type SessionLimits, type SignedIn, startSession } from './session-data.ts';
import type { SessionStore } from './session-store.ts';
import type { Users } from './users.ts';

const credentials = z.object({ username: z.string().max(256), password: z.string().max(1024) });

/** The account that a login request's body names; empty if it names none. */
export function accountOf(_req: Request, res: Response): string {
  return credentials.safeParse(bodyOf(res)).data?.username ?? '';
}

/**
 * How many passwords are verified at once. Each keeps one of the runtime's four threads busy for a fifth of a second,
 * and the names of new connections to the bot service are looked up on the same threads.
 */
const VERIFIED_AT_ONCE = 2;

/**
 * `POST /auth/login`: a session with a new id; the id that came with the request is dead from then on. A client that
 * leaves while others are verified costs nothing more.
 * @throws Problem `invalid_credentials` or `session_store_unavailable`
 */
export function login(users: Users, limits: SessionLimits): RequestHandler {
  const inTurn = fewAtOnce(VERIFIED_AT_ONCE);
  return async function login(req, res) {
    const before = req.session;
    const given = credentials.safeParse(bodyOf(res));
    const user = await inTurn(async () => {
      if (res.closed || !given.success) return undefined;
      return users.verify(given.data.username, given.data.password);
    });
    if (res.closed) return letGoOfSession(req);
    if (!user) throw new Problem('invalid_credentials', 'The user name or the password is wrong.');
    await stored((done) => before.regenerate(done));
    const session = Object.assign(req.session, startSession(user, limits, Date.now()));
    await stored((done) => session.save(done));
    rememberSession(req, res, session);
    // With the headers goes the cookie; after that, express-session would only save all of it once more.
    const body = JSON.stringify(describeSession(session));
    res
      .type('json')
      .set('Content-Length', String(Buffer.byteLength(body)))
      .flushHeaders();
    letGoOfSession(req);
    res.end(body);
  };
}

/** `GET /auth/session`: whose session it is and how long it lasts. Never extends it. */
export function showSession(): RequestHandler {
  return function showSession(req, res) {
    const { session } = req;
    letGoOfSession(req);
    if (!isLive(session, Date.now())) throw new Problem('unauthenticated', 'There is no live session.');
    res.json(describeSession(session));
  };
}

interface Cookie {
  readonly name: string;
  readonly flags: object;
}

/**
 * `POST /auth/logout`: the session is removed, and its cookie. What is open of it ends as the store tells.
 * @throws Problem `session_store_unavailable`
 */
export function logout({ name, flags }: Cookie): RequestHandler {
  return async function logout(req, res) {
    const { session } = req;
    letGoOfSession(req);
    await stored((done) => session.destroy(done));
    res.clearCookie(name, flags);
    res.status(204).end();
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

/** One operation of the session store. @throws Problem `session_store_unavailable` if it fails */
function stored(operation: (done: (error?: unknown) => void) => void): Promise<void> {
  return new Promise((resolve, reject) => {
    operation((error) => (error ? reject(storeUnavailable(error)) : resolve()));
  });
}

function describeSession({ user, idleExpiresAt, absoluteExpiresAt }: SignedIn) {
  return {
    user: { id: user.id, name: user.name },
    idleExpiresAt: new Date(idleExpiresAt).toISOString(),
    absoluteExpiresAt: new Date(absoluteExpiresAt).toISOString(),
  };
}

function bodyOf(res: Response): unknown {
  return JSON.parse(res.locals.body?.toString('utf8') ?? 'null');
}
