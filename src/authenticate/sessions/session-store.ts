import type { Session } from './session.ts';

/**
 * What a store knows of a session: its idle limit (ms since the epoch), that it was removed, or nothing, because
 * it ran out, was never there, or the store has lost it.
 */
export type SessionState = number | 'removed' | 'missing';

/** By what sessions are removed together. */
export interface SessionOwner {
  readonly userId: string;
  readonly providerSession: string | undefined;
}

/** How long a store remembers that it was asked to remove all sessions of somebody, in ms: longer than a sign-in takes to end. */
export const REMOVAL_MEMORY_MS = 60_000;

/** Hears which sessions are over. */
export interface SessionEnds {
  /** The keys of sessions that were removed, by whichever instance. */
  removed(keys: readonly string[]): void;
  /** Removals may have gone unheard: whoever cares must ask for each session. */
  missed(): void;
}

/**
 * A store of sessions, by session key (`session-key.ts`). Nothing brings a removed session back, neither `set` nor
 * `extend`. All reject with Problem `session_store_unavailable` if the store is out of reach.
 */
export interface SessionStore {
  /** The session; undefined if there is none, or none any more. It may have run out. */
  get(key: string): Promise<Session | undefined>;
  /** Keeps the session until its idle limit. */
  set(key: string, session: Session): Promise<void>;
  /** Moves the idle limit of a session that has not run out forward to `idleExpiresAt`, and never back. */
  extend(key: string, idleExpiresAt: number): Promise<SessionState>;
  state(key: string): Promise<SessionState>;
  /** Removes a session; nothing happens if there is none. */
  remove(key: string): Promise<void>;
  /** Removes all sessions that began in one session of the identity provider; returns how many. */
  removeProviderSession(providerSession: string): Promise<number>;
  /** Removes all sessions of a user; returns how many. */
  removeUser(userId: string): Promise<number>;
  /** Whether all of a user's sessions, or of a session of the provider, were removed at `since` (ms since the epoch) or later; for a minute. */
  removedSince(owner: SessionOwner, since: number): Promise<boolean>;
  listen(ends: SessionEnds): void;
  /** Ends what the store does by itself. */
  close(): void;
}
