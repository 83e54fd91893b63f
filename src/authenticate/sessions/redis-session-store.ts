import type { Logger } from '../../logger.ts';
import type { Redis } from '../../storage/redis.ts';
import { redisSessionLists } from './redis-session-lists.ts';
import type { LiveSession } from './session.ts';
import type { SessionCodec } from './session-codec.ts';
import {
  CHANNEL,
  PROVIDER_PREFIX,
  REMOVED,
  SESSION_PREFIX,
  SESSION_SCRIPT,
  USER_PREFIX,
} from './session-script.ts';
import { setsOf } from './session-sets.ts';
import type { SessionState, SessionStore } from './session-store.ts';

export interface RedisSessionStoreOptions {
  readonly redis: Redis;
  readonly logger: Logger;
  readonly codec: SessionCodec;
  /** How long a session lives at most, in ms. */
  readonly absoluteMs: number;
}

/** How many sessions are removed at once: other commands come between. */
const BATCH = 500;

/**
 * Sessions in Redis, shared by all instances. No script has keys of two owners: that of a session changes it alone, and
 * that of a set (`redis-session-lists.ts`) knows the sessions of a user, or of the provider's session. A session is
 * removed and its removal is published in one step, so that neither happens alone; so is the mark that ends all of a set.
 */
export function redisSessionStore(options: RedisSessionStoreOptions): SessionStore {
  const { redis, logger, codec, absoluteMs } = options;
  const run = redis.script(SESSION_SCRIPT);
  const lists = redisSessionLists(redis, absoluteMs);
  const nameOf = (key: string) => SESSION_PREFIX + key;
  const now = () => String(Date.now());
  const textOf = (key: string) => redis.run((client) => client.get(nameOf(key)));
  let hasWarned = false;

  function decode(key: string, text: string) {
    const session = codec.decode(key, text);
    if (session === undefined && !hasWarned) {
      hasWarned = true;
      logger.warn('this relay cannot read a stored session; it counts as none');
    }
    return session;
  }

  /** What a session of this owner is called in its sets. The beginning of one of version 0.2 is calculated. */
  function listed({ key, user, providerSession, startedAt, absoluteExpiresAt }: LiveSession) {
    const sets = setsOf({ userId: user.id, providerSession });
    return { key, sets, startedAt: startedAt ?? absoluteExpiresAt - absoluteMs };
  }

  async function removeAll(set: string): Promise<number> {
    const keys = await lists.end(set);
    let count = 0;
    for (let from = 0; from < keys.length; from += BATCH) {
      const batch = keys.slice(from, from + BATCH);
      const removed = await Promise.all(batch.map((key) => run([nameOf(key)], ['remove', now()])));
      const sets = removed.map((text) => (text === null ? [] : codec.setsOf(text as string)));
      await lists.forget(batch.map((key, n) => ({ key, sets: [set, ...(sets[n] ?? [])] })));
      count += removed.filter((text) => text !== null).length;
    }
    return count;
  }

  return {
    now: lists.now,
    async get(key) {
      const text = await textOf(key);
      return text === null || text === REMOVED ? undefined : decode(key, text);
    },
    hasEnded: (session) => lists.haveEnded(listed(session)),
    async set(key, session) {
      const ttl = session.idleExpiresAt - Date.now();
      if (ttl <= 0) return;
      const stored = run([nameOf(key)], ['set', now(), codec.encode(key, session), String(ttl)]);
      await Promise.all([stored, lists.keep(listed({ ...session, key }), session.idleExpiresAt)]);
    },
    async extend(session, idleExpiresAt) {
      const own = listed(session);
      const extended = run([nameOf(own.key)], ['extend', now(), String(idleExpiresAt)]);
      const [state, isKept] = await Promise.all([extended, lists.keep(own, idleExpiresAt)]);
      if (typeof state !== 'number') await lists.forget([own]);
      if (isKept) return state as SessionState;
      // It was extended all the same, and must not outlive the mark.
      await run([nameOf(own.key)], ['remove', now()]);
      return 'removed';
    },
    async state(session) {
      const [text, hasEnded] = await Promise.all([textOf(session.key), lists.haveEnded(listed(session))]);
      if (text === REMOVED || hasEnded) return 'removed';
      return (text !== null && codec.decode(session.key, text)?.idleExpiresAt) || 'missing';
    },
    async remove(key) {
      const text = (await run([nameOf(key)], ['remove', now(), key])) as string | null;
      if (text !== null) await lists.forget([{ key, sets: codec.setsOf(text) }]);
    },
    removeProviderSession: (providerSession) => removeAll(PROVIDER_PREFIX + providerSession),
    removeUser: (userId) => removeAll(USER_PREFIX + userId),
    removedSince: (owner, since) => lists.endedSince(setsOf(owner), since),
    listen({ removed, missed }) {
      void redis.subscribe(CHANNEL, (keys) => removed(keys.split(' ')), missed);
    },
    close() {},
  };
}
