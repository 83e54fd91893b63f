import type { Session } from './session.ts';
import {
  REMOVAL_MEMORY_MS,
  type RemovalListener,
  type SessionOwner,
  type SessionState,
  type SessionStore,
} from './session-store.ts';

/** How often expired sessions are deleted, in ms. */
const SWEEP_MS = 60_000;

interface StoredSession {
  /** Undefined once the session is removed. */
  readonly session: Session | undefined;
  readonly idleExpiresAt: number;
}

/** The content of a store. */
interface Memory {
  readonly entries: Map<string, StoredSession>;
  /** When all sessions of a user, or of a session of the provider, were last removed. */
  readonly removals: {
    readonly users: Map<string, number>;
    readonly providerSessions: Map<string, number>;
  };
  readonly listeners: RemovalListener[];
  readonly now: () => number;
}

/**
 * Sessions in the memory of this process, for a single instance. A removed session is remembered until it would have
 * expired, so that a request that is still under way after a logout cannot restore it. `now` is a clock in ms since the
 * epoch.
 */
export function memorySessionStore(now: () => number = () => Date.now()): SessionStore {
  const removals = { users: new Map<string, number>(), providerSessions: new Map<string, number>() };
  const memory: Memory = { entries: new Map(), removals, listeners: [], now };
  const { entries } = memory;
  const sweep = setInterval(() => deleteExpired(memory), SWEEP_MS).unref();
  return {
    now: async () => now(),
    startTime: async (owner) => Math.max(now(), lastRemoval(memory, owner) + 1),
    async get(key) {
      const { session, idleExpiresAt = 0 } = entries.get(key) ?? {};
      return session && now() < idleExpiresAt ? { ...session, idleExpiresAt } : undefined;
    },
    // All sessions of a user are removed in one step, so that none is left to ask for.
    hasEnded: async () => false,
    async set(key, session) {
      const { user, providerSession, startedAt } = session;
      const hasEnded = lastRemoval(memory, { userId: user.id, providerSession }) >= startedAt;
      const isRemoved = hasEnded || (entries.has(key) && entries.get(key)?.session === undefined);
      if (!isRemoved) entries.set(key, { session: { ...session }, idleExpiresAt: session.idleExpiresAt });
      return !isRemoved;
    },
    extend: async ({ key }, idleExpiresAt) => extend(memory, key, idleExpiresAt),
    async state({ key }) {
      const entry = entries.get(key);
      if (entry === undefined || entry.idleExpiresAt <= now()) return 'missing';
      return entry.session === undefined ? 'removed' : entry.idleExpiresAt;
    },
    async remove(key) {
      remove(memory, [key]);
    },
    async removeProviderSession(providerSession) {
      removals.providerSessions.set(providerSession, now());
      return removeWhere(memory, (session) => session.providerSession === providerSession);
    },
    async removeUser(userId) {
      removals.users.set(userId, now());
      return removeWhere(memory, ({ user }) => user.id === userId);
    },
    removedSince: async (owner, since) => lastRemoval(memory, owner) >= since,
    listen: (listener) => void memory.listeners.push(listener),
    close: () => clearInterval(sweep),
  };
}

/** When all sessions of this user, or of the provider's session, were last removed. */
function lastRemoval({ removals }: Memory, { userId, providerSession = '' }: SessionOwner): number {
  const { users, providerSessions } = removals;
  const never = Number.NEGATIVE_INFINITY;
  return Math.max(users.get(userId) ?? never, providerSessions.get(providerSession) ?? never);
}

function deleteExpired({ entries, removals, now }: Memory): void {
  for (const [key, { idleExpiresAt }] of entries) if (idleExpiresAt <= now()) entries.delete(key);
  for (const times of Object.values(removals))
    for (const [name, at] of times) if (at + REMOVAL_MEMORY_MS <= now()) times.delete(name);
}

/** Removes the sessions of `keys` that are not removed yet; returns how many. */
function remove({ entries, listeners }: Memory, keys: readonly string[]): number {
  const live = keys.filter((key) => entries.get(key)?.session !== undefined);
  for (const key of live) {
    const { idleExpiresAt } = entries.get(key) as StoredSession;
    entries.set(key, { session: undefined, idleExpiresAt });
  }
  if (live.length > 0) for (const { removed } of listeners) removed(live);
  return live.length;
}

function removeWhere(memory: Memory, matches: (session: Session) => boolean): number {
  const matching = [...memory.entries].filter(([, { session }]) => session && matches(session));
  const keys = matching.map(([key]) => key);
  return remove(memory, keys);
}

function extend({ entries, now }: Memory, key: string, idleExpiresAt: number): SessionState {
  const entry = entries.get(key);
  if (!entry || entry.idleExpiresAt <= now()) return 'missing';
  if (entry.session === undefined) return 'removed';
  if (idleExpiresAt <= entry.idleExpiresAt) return entry.idleExpiresAt;
  entries.set(key, { ...entry, idleExpiresAt });
  return idleExpiresAt;
}
