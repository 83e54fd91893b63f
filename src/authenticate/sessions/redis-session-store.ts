import type { Logger } from '../../logger.ts';
import type { Redis } from '../../storage/redis.ts';
import type { SessionCodec } from './session-codec.ts';
import {
  CHANNEL,
  PROVIDER_PREFIX,
  REMOVED,
  SESSION_PREFIX,
  SESSION_SCRIPT,
  USER_PREFIX,
} from './session-script.ts';
import type { SessionState, SessionStore } from './session-store.ts';

export interface RedisSessionStoreOptions {
  readonly redis: Redis;
  readonly logger: Logger;
  readonly codec: SessionCodec;
}

/**
 * Sessions in Redis, shared by all instances. Each call is one round trip. A session is removed and its removal is
 * published in one step, so that neither happens alone.
 */
export function redisSessionStore({ redis, logger, codec }: RedisSessionStoreOptions): SessionStore {
  const run = redis.script(SESSION_SCRIPT);
  const nameOf = (key: string) => SESSION_PREFIX + key;
  const now = () => String(Date.now());
  const removeAll = (set: string) => run([set], ['remove-all', now()]) as Promise<number>;
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

  return {
    async get(key) {
      const text = await textOf(key);
      return text === null || text === REMOVED ? undefined : decode(key, text);
    },
    async set(key, session) {
      const ttl = session.idleExpiresAt - Date.now();
      if (ttl > 0) await run([nameOf(key)], ['set', now(), codec.encode(key, session), String(ttl)]);
    },
    extend: (key, idleExpiresAt) =>
      run([nameOf(key)], ['extend', now(), String(idleExpiresAt)]) as Promise<SessionState>,
    async state(key) {
      const text = await textOf(key);
      if (text === REMOVED) return 'removed';
      return (text !== null && codec.decode(key, text)?.idleExpiresAt) || 'missing';
    },
    async remove(key) {
      await run([nameOf(key)], ['remove', now()]);
    },
    removeProviderSession: (providerSession) => removeAll(PROVIDER_PREFIX + providerSession),
    removeUser: (userId) => removeAll(USER_PREFIX + userId),
    async removedSince({ userId, providerSession }, since) {
      const sets = [USER_PREFIX + userId];
      if (providerSession !== undefined) sets.push(PROVIDER_PREFIX + providerSession);
      return (await run(sets, ['removed-since', now(), String(since)])) === 1;
    },
    listen({ removed, missed }) {
      void redis.subscribe(CHANNEL, (keys) => removed(keys.split(' ')), missed);
    },
    close() {},
  };
}
