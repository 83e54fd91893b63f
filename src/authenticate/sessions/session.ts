import { hash } from 'node:crypto';
import type { Config } from '../../config/config.ts';

/** The user of a session. */
export interface User {
  readonly id: string;
  readonly name: string;
}

/** What is kept of the identity provider's own session. */
export interface ProviderSession {
  /** The provider's id of its session (the claim `sid`). */
  readonly providerSession?: string | undefined;
  /** The provider's ID token, if its logout needs it. */
  readonly idToken?: string | undefined;
}

/** A user's session. Times are in ms since the epoch. */
export interface Session extends ProviderSession {
  readonly user: User;
  /** When the session began, by the clock of its store. */
  readonly startedAt: number;
  /** When the session expires if it is not used before. */
  readonly idleExpiresAt: number;
  /** When the session expires even if it is used. Never changes. */
  readonly absoluteExpiresAt: number;
}

/** A session that has not expired, with its key (`sessionKey`). */
export interface LiveSession extends Session {
  readonly key: string;
}

/** How long a session lives, in ms. */
export interface SessionLimits {
  readonly idleMs: number;
  readonly absoluteMs: number;
}

/** A new session of `user` that begins at `now` (ms since the epoch). */
export function startSession(user: User, { idleMs, absoluteMs }: SessionLimits, now: number): Session {
  const absoluteExpiresAt = now + absoluteMs;
  const idleExpiresAt = Math.min(now + idleMs, absoluteExpiresAt);
  return { user, startedAt: now, idleExpiresAt, absoluteExpiresAt };
}

/** The idle limit of a session that is used at `now`; never later than its absolute limit. */
export function extendedIdleLimit(
  session: Pick<Session, 'absoluteExpiresAt'>,
  { idleMs }: SessionLimits,
  now: number,
): number {
  return Math.min(now + idleMs, session.absoluteExpiresAt);
}

/**
 * Where a user id is valid. The same subject may be another user at another provider, or for another client (OpenID
 * Connect Core §8), so sessions, sign-ins and limits of two realms are kept apart.
 */
export function realmOf({ authMode, oidc }: Pick<Config, 'authMode' | 'oidc'>): string {
  return authMode === 'oidc' ? `oidc ${oidc.issuer} ${oidc.clientId}` : authMode;
}

/**
 * The key of a session, by which everything except the session cookie names it: the SHA-256 of its id, in base64url.
 * The id has 192 random bits, so it cannot be found from the key. A dump of Redis holds only keys, from which nobody can
 * make a cookie, even with the signing secrets.
 */
export function sessionKey(id: string): string {
  return hash('sha256', id, 'base64url');
}
