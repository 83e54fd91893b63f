import type { CookieOptions, Request, Response } from 'express';
import { requestCookies } from '../../http/request-cookies.ts';
import type { SessionStore } from '../sessions/session-store.ts';

const NAME = 'bot_relay_before';
const KEY = /^[\w-]{43}$/;

export interface SessionBeforeOptions {
  readonly sessions: Pick<SessionStore, 'remove'>;
  /** The one path to which the browser tells it. */
  readonly callbackPath: string;
  /** Whether the browser sees the relay over https. */
  readonly https: boolean;
  /** How long the longest session lives, in ms. */
  readonly absoluteMs: number;
}

export interface SessionBefore {
  /** Ends the session that the browser had before this request. @throws Problem `session_store_unavailable` */
  end(req: Request): Promise<void>;
  /** Lets the browser remember the session that has just begun, by its key, in a cookie that goes with the answer. */
  remember(key: string, res: Response): void;
}

/**
 * The session that a sign-in at the identity provider replaces. The way back from there begins at another site, so
 * that a strict session cookie does not come along; this cookie is `Lax`, and holds the session's key, which names
 * the session and opens nothing.
 */
export function sessionBefore({
  sessions,
  callbackPath,
  https,
  absoluteMs,
}: SessionBeforeOptions): SessionBefore {
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
