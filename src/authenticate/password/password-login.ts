import type { Request, RequestHandler, Response } from 'express';
import { z } from 'zod';
import { Problem } from '../../errors.ts';
import type { User } from '../../http/locals.ts';
import { beginSession, sendSession } from '../sessions/begin-session.ts';
import { letGoOfSession } from '../sessions/require-session.ts';
import type { SessionLimits } from '../sessions/session-data.ts';
import type { Users } from './users.ts';

const credentials = z.object({ username: z.string().max(256), password: z.string().max(1024) });

/** The account that a login request's body names; empty if it names none. */
export function accountOf(_req: Request, res: Response): string {
  return credentials.safeParse(bodyOf(res)).data?.username ?? '';
}

/** Runs `check` when the turn of this sign-in comes; it counts as failed if there is no result. */
export type PasswordAttempt = (
  req: Request,
  res: Response,
  check: () => Promise<User | undefined>,
) => Promise<User | undefined>;

/**
 * `POST /auth/login`: a session with a new id; the id that came with the request is dead from then on. `attempt`
 * checks the password when its turn comes.
 * @throws Problem `invalid_credentials` or `session_store_unavailable`, or what `attempt` throws
 */
export function login(users: Users, limits: SessionLimits, attempt: PasswordAttempt): RequestHandler {
  return async function login(req, res) {
    const given = credentials.safeParse(bodyOf(res)).data;
    const check = async () => given && users.verify(given.username, given.password);
    const user = await attempt(req, res, check).catch((error: unknown) => {
      if (!res.closed) throw error;
    });
    if (res.closed) return letGoOfSession(req);
    if (!user) throw new Problem('invalid_credentials', 'The user name or the password is wrong.');
    sendSession(req, res, await beginSession(req, res, { user, limits }));
  };
}

function bodyOf(res: Response): unknown {
  return JSON.parse(res.locals.body?.toString('utf8') ?? 'null');
}
