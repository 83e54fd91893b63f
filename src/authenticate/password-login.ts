import type { Request, RequestHandler, Response } from 'express';
import { z } from 'zod';
import { Problem } from '../errors.ts';
import { beginSession, sendSession } from './begin-session.ts';
import { fewAtOnce } from './few-at-once.ts';
import { letGoOfSession } from './require-session.ts';
import type { SessionLimits } from './session-data.ts';
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
    const given = credentials.safeParse(bodyOf(res));
    const user = await inTurn(async () => {
      if (res.closed || !given.success) return undefined;
      return users.verify(given.data.username, given.data.password);
    });
    if (res.closed) return letGoOfSession(req);
    if (!user) throw new Problem('invalid_credentials', 'The user name or the password is wrong.');
    sendSession(req, res, await beginSession(req, res, { user, limits }));
  };
}

function bodyOf(res: Response): unknown {
  return JSON.parse(res.locals.body?.toString('utf8') ?? 'null');
}
