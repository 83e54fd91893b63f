import type { LiveSession } from './session.ts';
import type { SessionStore } from './session-store.ts';

/** How many sessions are remembered. */
const MAX_REMEMBERED = 10_000;

/**
 * Calls `onLost` once for each session that the store has lost: it was read here before, is within its limits, and was
 * not removed. A cookie alone does not show a loss: a session that has expired is missing, too.
 */
export function noteLostSessions(store: SessionStore, onLost: () => void): SessionStore {
  const lastRead = new Map<string, LiveSession>();
  return {
    ...store,
    async get(key) {
      const session = await store.get(key);
      const before = lastRead.get(key);
      lastRead.delete(key);
      if (session) {
        if (lastRead.size >= MAX_REMEMBERED) lastRead.clear();
        lastRead.set(key, { ...session, key });
      } else if (before && isLive(before) && (await store.state(before)) === 'missing') onLost();
      return session;
    },
  };
}

function isLive({ idleExpiresAt, absoluteExpiresAt }: LiveSession): boolean {
  return Date.now() < Math.min(idleExpiresAt, absoluteExpiresAt);
}
