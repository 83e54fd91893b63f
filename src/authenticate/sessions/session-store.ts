import type { LiveSession, Session } from './session.ts';

/**
 * What a store knows of a session: its idle limit (ms since the epoch); `removed`; or `missing`, since it has expired,
 * was never stored, or was lost by the store.
 */
export type SessionState = number | 'removed' | 'missing';

/** Whose sessions can be removed together: all of a user, or all that began in one session of the provider. */
export interface SessionOwner {
  readonly userId: string;
  readonly providerSession: string | undefined;
}

/** How long a store remembers the removal of all sessions of a user, in ms: longer than a sign-in takes to finish. */
export const REMOVAL_MEMORY_MS = 60_000;

/** Called when sessions are removed. */
export interface RemovalListener {
  /** Takes the keys of sessions that this or another instance has removed; a key may come again. */
  removed(keys: readonly string[]): void;
  /** Removals may have been missed: the listener must ask for the state of each session. */
  missed(): void;
}

/**
 * A store of sessions, by session key (`sessionKey`). Neither `set` nor `extend` restores a removed session. All
 * methods reject with Problem `session_store_unavailable` if the store is out of reach.
 */
export interface SessionStore {
  /** The time by the clock that says when a session began, and when all sessions of a user were removed; in ms. */
  now(): Promise<number>;
  /** The time by `now` for a session of this owner that begins now: later than each removal before it. */
  startTime(owner: SessionOwner): Promise<number>;
  /**
   * The session; undefined if there is none, or its idle limit has passed, by the clock of the store, since those of
   * instances may differ. It may have ended with all those of its user: ask `hasEnded`.
   */
  get(key: string): Promise<Session | undefined>;
  /** Whether the session has ended with all those of its user, or of the provider's session. */
  hasEnded(session: LiveSession): Promise<boolean>;
  /** Stores the session until its idle limit; false if it was removed meanwhile, be it with all those of its user. */
  set(key: string, session: Session): Promise<boolean>;
  /** Moves the idle limit of a session that has not expired to `idleExpiresAt`, but never to an earlier time. */
  extend(session: LiveSession, idleExpiresAt: number): Promise<SessionState>;
  /** What the store knows of the session now. */
  state(session: LiveSession): Promise<SessionState>;
  /** Removes a session; does nothing if there is none. */
  remove(key: string): Promise<void>;
  /** Removes all sessions that began in one session of the identity provider; returns how many. */
  removeProviderSession(providerSession: string): Promise<number>;
  /** Removes all sessions of a user; returns how many. */
  removeUser(userId: string): Promise<number>;
  /**
   * Whether all sessions of the user, or of the provider's session, were removed at `since` (by `now`) or later. Known for
   * `REMOVAL_MEMORY_MS`.
   */
  removedSince(owner: SessionOwner, since: number): Promise<boolean>;
  listen(listener: RemovalListener): void;
  /** Stops the timers of the store. */
  close(): void;
}
