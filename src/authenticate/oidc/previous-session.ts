import type { CookieOptions, Request, Response } from 'express';
import { requestCookies } from '../sessions/session-cookie.ts';
import type { SessionStore } from '../sessions/session-store.ts';

const NAME = 'bot_relay_before';
const KEY = /^[\w-]{43}$/;

export interface PreviousSessionOptions {
  readonly sessions: Pick<SessionStore, 'remove'>;
  /** The only path to which the browser sends the cookie. */
  readonly callbackPath: string;
  /** Whether the browser sees the relay over https. */
  readonly https: boolean;
  /** How long the longest session lives, in ms. */
  readonly absoluteMs: number;
}

export interface PreviousSession {
  /** Ends the browser's previous session. @throws Problem `session_store_unavailable` */
  end(req: Request): Promise<void>;
  /** Remembers the session that has just begun, by its key, in a cookie of the answer. */
  remember(key: string, res: Response): void;
}

/**
 * The session that a sign-in at the identity provider replaces. The browser comes back from another site, so it does not
 * send a session cookie that is `SameSite=Strict`. This cookie is `Lax`. It holds the session's key, which is no
 * credential.
 */
export function previousSession({
  sessions,
  callbackPath,
  https,
  absoluteMs,
}: PreviousSessionOptions): PreviousSession {
  const flags: CookieOptions = { httpOnly: true, sameSite: 'lax', path: callbackPath, secure: https };
  return {
    async end(req) {
      const cookies = requestCookies(req.headers.cookie);
      const before = cookies.find(({ name, value }) => name === NAME && KEY.test(value));
      if (before) await sessions.remove(before.value);
    },
    remember(key, res) {
      res.cookie(NAME, key, { ...flags, maxAge: absoluteMs });
    },
  };
}
