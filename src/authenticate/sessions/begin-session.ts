import type { Request, Response } from 'express';
import type { User } from '../../http/locals.ts';
import { storeUnavailable } from './attach-session.ts';
import { letGoOfSession, rememberSession } from './require-session.ts';
import { type ProviderSession, type SessionLimits, type SignedIn, startSession } from './session-data.ts';

export interface BeginSessionOptions {
  readonly user: User;
  readonly limits: SessionLimits;
  /** What the session holds besides. */
  readonly provider?: ProviderSession;
}

/**
 * Signs `user` in: a session with a new id, which is saved when this resolves; the id that came with the request is
 * dead from then on.
 * @throws Problem `session_store_unavailable`
 */
export async function beginSession(
  req: Request,
  res: Response,
  { user, limits, provider = {} }: BeginSessionOptions,
): Promise<SignedIn> {
  await stored((done) => req.session.regenerate(done));
  const session = Object.assign(req.session, startSession(user, limits, Date.now()), provider);
  await stored((done) => session.save(done));
  rememberSession(req, res, session);
  return session;
}

/** Answers with the session that has just begun, its cookie and, as JSON, what `describeSession` says of it. */
export function sendSession(req: Request, res: Response, session: SignedIn): void {
  const body = JSON.stringify(describeSession(session));
  res.type('json').set('Content-Length', String(Buffer.byteLength(body)));
  endWithCookie(req, res, body);
}

/** Ends the answer whose head is set, the session's cookie with it. */
export function endWithCookie(req: Request, res: Response, body = ''): void {
  // With the headers goes the cookie; after that, express-session would only save all of it once more.
  res.flushHeaders();
  letGoOfSession(req);
  res.end(body);
}

/** One operation of the session store. @throws Problem `session_store_unavailable` if it fails */
export function stored(operation: (done: (error?: unknown) => void) => void): Promise<void> {
  return new Promise((resolve, reject) => {
    operation((error) => (error ? reject(storeUnavailable(error)) : resolve()));
  });
}

/** What a client learns of a session: whose it is and how long it lasts (ISO 8601). */
export function describeSession({ user, idleExpiresAt, absoluteExpiresAt }: SignedIn) {
  return {
    user: { id: user.id, name: user.name },
    idleExpiresAt: new Date(idleExpiresAt).toISOString(),
    absoluteExpiresAt: new Date(absoluteExpiresAt).toISOString(),
  };
}
