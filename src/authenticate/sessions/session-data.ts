import type { Request, Response } from 'express';
import type { SessionData } from 'express-session';
import type { User } from '../../http/locals.ts';
import { sessionKey } from './session-key.ts';

declare module 'express-session' {
  interface SessionData {
    /** Unset until somebody signs in. */
    user?: User;
    /** Milliseconds since the epoch after which the session is dead unless it is used before. */
    idleExpiresAt?: number;
    /** Milliseconds since the epoch after which the session is dead whatever happens. Never moves. */
    absoluteExpiresAt?: number;
    /** The identity provider's name for the session in which it signed the user in (its claim `sid`). */
    providerSession?: string;
    /** The identity provider's ID token, if its logout asks for it. */
    idToken?: string;
  }
}

/** How long a session lives, in ms. */
export interface SessionLimits {
  readonly idleMs: number;
  readonly absoluteMs: number;
}

/** A session that belongs to somebody and has not run out. */
export type SignedIn = Required<Pick<SessionData, 'user' | 'idleExpiresAt' | 'absoluteExpiresAt'>>;

/** What the identity provider has said of the session in which it signed a user in. */
export type ProviderSession = Pick<SessionData, 'providerSession' | 'idToken'>;

/** What a new session of `user` holds at the moment `now` (ms since the epoch). */
export function startSession(user: User, { idleMs, absoluteMs }: SessionLimits, now: number): SignedIn {
  const absoluteExpiresAt = now + absoluteMs;
  return { user, absoluteExpiresAt, idleExpiresAt: Math.min(now + idleMs, absoluteExpiresAt) };
}

/** The idle limit of a session that is used at `now`; never beyond its absolute limit. */
export function extendedIdleLimit(session: SignedIn, { idleMs }: SessionLimits, now: number): number {
  return Math.min(now + idleMs, session.absoluteExpiresAt);
}

/** Whether the session is somebody's and within both of its limits at `now`. */
export function isLive(session: Partial<SignedIn> | undefined, now: number): session is SignedIn {
  return (
    session?.user !== undefined &&
    session.idleExpiresAt !== undefined &&
    session.absoluteExpiresAt !== undefined &&
    now < session.idleExpiresAt &&
    now < session.absoluteExpiresAt
  );
}

/** The key of the request's session if that is live; for what is counted by session. */
export function liveSessionKey({ session, sessionID }: Request, res?: Response): string | undefined {
  if (!isLive(session, Date.now())) return undefined;
  // Behind `requireSession` it is known already.
  return res?.locals.session?.id ?? sessionKey(sessionID);
}
