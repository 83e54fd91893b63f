import type { CookieOptions, Request, Response } from 'express';
import { sessionKey } from './session-key.ts';
import type { SessionStore } from './session-store.ts';

const NAME = 'bot_relay_before';

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
  /** Lets the browser remember the session that has just begun, in a cookie that goes with the answer. */
  remember(req: Request, res: Response): void;
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
  const cookie = new RegExp(`(?:^|;)\\s*${NAME}=([\\w-]{43})(?:;|$)`);
  return {
    async end(req) {
      const key = cookie.exec(req.headers.cookie ?? '')?.[1];
      if (key !== undefined) await sessions.remove(key);
    },
    remember(req, res) {
      res.cookie(NAME, sessionKey(req.sessionID), { ...flags, maxAge: absoluteMs });
    },
  };
}
