/** Who a session belongs to. */
export interface User {
  readonly id: string;
  readonly name: string;
}

/** What the identity provider has said of the session in which it signed a user in. */
export interface ProviderSession {
  /** The provider's name for its session (the claim `sid`). */
  readonly providerSession?: string | undefined;
  /** The provider's ID token, if its logout asks for it. */
  readonly idToken?: string | undefined;
}

/** A user's session. Times are in ms since the epoch. */
export interface Session extends ProviderSession {
  readonly user: User;
  /** The session is dead from then on unless it is used before. */
  readonly idleExpiresAt: number;
  /** The session is dead from then on whatever happens. Never moves. */
  readonly absoluteExpiresAt: number;
}

/** A session that is live, with the key that names it (`session-key.ts`). */
export interface LiveSession extends Session {
  readonly key: string;
}

/** How long a session lives, in ms. */
export interface SessionLimits {
  readonly idleMs: number;
  readonly absoluteMs: number;
}

/** What a new session of `user` holds at the moment `now` (ms since the epoch). */
export function startSession(user: User, { idleMs, absoluteMs }: SessionLimits, now: number): Session {
  const absoluteExpiresAt = now + absoluteMs;
  return { user, absoluteExpiresAt, idleExpiresAt: Math.min(now + idleMs, absoluteExpiresAt) };
}

/** The idle limit of a session that is used at `now`; never beyond its absolute limit. */
export function extendedIdleLimit(
  session: Pick<Session, 'absoluteExpiresAt'>,
  { idleMs }: SessionLimits,
  now: number,
): number {
  return Math.min(now + idleMs, session.absoluteExpiresAt);
}

/** Whether the session is within both of its limits at `now`. */
export function isLive({ idleExpiresAt, absoluteExpiresAt }: Session, now: number): boolean {
  return now < idleExpiresAt && now < absoluteExpiresAt;
}
