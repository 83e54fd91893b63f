import session, { type SessionData } from 'express-session';
import { sessionKey } from './session-key.ts';
import {
  REMOVAL_MEMORY_MS,
  type SessionEnds,
  type SessionOwner,
  type SessionState,
  type SessionStore,
} from './session-store.ts';
import { decodeSession, encodeSession } from './session-text.ts';

/** How often dead sessions are swept out, in ms. */
const SWEEP_MS = 60_000;

interface Entry {
  /** As text, so that nobody shares an object with the store; undefined once the session is removed. */
  readonly text: string | undefined;
  readonly userId: string | undefined;
  readonly providerSession: string | undefined;
  /** Counts in place of the one in the text, so that moving it leaves the text alone. */
  readonly idleExpiresAt: number;
}

/**
 * Sessions in this process's memory: for one instance. Unlike express-session's own memory store it forgets
 * dead sessions by itself, and remembers the removed ones for as long as they would have lived, so that a
 * request that outlives a logout cannot bring the session back. Call `close()` to stop the sweep.
 */
export class MemorySessionStore extends session.Store implements SessionStore {
  readonly #entries = new Map<string, Entry>();
  /** When all sessions of a user, or of a session of the provider, were last removed. */
  readonly #removals = { users: new Map<string, number>(), providerSessions: new Map<string, number>() };
  readonly #listeners: SessionEnds[] = [];
  readonly #now: () => number;
  readonly #sweep: NodeJS.Timeout;

  constructor(now: () => number = Date.now) {
    super();
    this.#now = now;
    this.#sweep = setInterval(() => this.#forgetDead(), SWEEP_MS).unref();
  }

  override get(id: string, callback: (error: unknown, data?: SessionData | null) => void): void {
    const data = this.#read(sessionKey(id));
    queueMicrotask(() => callback(null, data));
  }

  override set(id: string, data: SessionData, callback?: (error?: unknown) => void): void {
    const key = sessionKey(id);
    if (!this.#isRemoved(key)) this.#write(key, data);
    if (callback) queueMicrotask(callback);
  }

  override touch(id: string, data: SessionData, callback?: (error?: unknown) => void): void {
    this.#extend(sessionKey(id), data.idleExpiresAt ?? 0);
    if (callback) queueMicrotask(callback);
  }

  override destroy(id: string, callback?: (error?: unknown) => void): void {
    this.#remove([sessionKey(id)]);
    if (callback) queueMicrotask(callback);
  }

  async extend(key: string, idleExpiresAt: number): Promise<SessionState> {
    return this.#extend(key, idleExpiresAt);
  }

  async state(key: string): Promise<SessionState> {
    if (this.#isRemoved(key)) return 'removed';
    return this.#entries.get(key)?.idleExpiresAt ?? 'missing';
  }

  async remove(key: string): Promise<void> {
    this.#remove([key]);
  }

  async removeProviderSession(providerSession: string): Promise<number> {
    this.#removals.providerSessions.set(providerSession, this.#now());
    return this.#removeWhere((entry) => entry.providerSession === providerSession);
  }

  async removeUser(userId: string): Promise<number> {
    this.#removals.users.set(userId, this.#now());
    return this.#removeWhere((entry) => entry.userId === userId);
  }

  async removedSince({ userId, providerSession }: SessionOwner, since: number): Promise<boolean> {
    const { users, providerSessions } = this.#removals;
    const removedAt = [users.get(userId), providerSessions.get(providerSession ?? '')];
    return removedAt.some((at) => at !== undefined && at >= since);
  }

  listen(ends: SessionEnds): void {
    this.#listeners.push(ends);
  }

  close(): void {
    clearInterval(this.#sweep);
  }

  #read(key: string): SessionData | null {
    const entry = this.#entries.get(key);
    if (entry?.text === undefined) return null;
    const data = decodeSession(entry.text);
    return data && { ...data, idleExpiresAt: entry.idleExpiresAt };
  }

  #isRemoved(key: string): boolean {
    const entry = this.#entries.get(key);
    return entry !== undefined && entry.text === undefined;
  }

  #write(key: string, data: SessionData): void {
    const { user, providerSession, idleExpiresAt = 0 } = data;
    this.#entries.set(key, { text: encodeSession(data), userId: user?.id, providerSession, idleExpiresAt });
  }

  #extend(key: string, idleExpiresAt: number): SessionState {
    const entry = this.#entries.get(key);
    if (!entry || entry.idleExpiresAt <= this.#now()) return 'missing';
    if (entry.text === undefined) return 'removed';
    if (idleExpiresAt <= entry.idleExpiresAt) return entry.idleExpiresAt;
    this.#entries.set(key, { ...entry, idleExpiresAt });
    return idleExpiresAt;
  }

  #removeWhere(isMeant: (entry: Entry) => boolean): number {
    return this.#remove([...this.#entries].filter(([, entry]) => isMeant(entry)).map(([key]) => key));
  }

  #remove(keys: readonly string[]): number {
    const live = keys.filter((key) => this.#entries.get(key)?.text !== undefined);
    for (const key of live) {
      const { idleExpiresAt } = this.#entries.get(key) as Entry;
      this.#entries.set(key, {
        text: undefined,
        userId: undefined,
        providerSession: undefined,
        idleExpiresAt,
      });
    }
    if (live.length > 0) for (const { removed } of this.#listeners) removed(live);
    return live.length;
  }

  #forgetDead(): void {
    const now = this.#now();
    for (const [key, { idleExpiresAt }] of this.#entries) if (idleExpiresAt <= now) this.#entries.delete(key);
    for (const removals of Object.values(this.#removals))
      for (const [name, at] of removals) if (at + REMOVAL_MEMORY_MS <= now) removals.delete(name);
  }
}
