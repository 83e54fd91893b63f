import { RedisStore } from 'connect-redis';
import type { SessionData } from 'express-session';
import type { Logger } from '../../logger.ts';
import type { Redis } from '../../storage/redis.ts';
import { sessionKey } from './session-key.ts';
import {
  CHANNEL,
  PROVIDER_PREFIX,
  REMOVED,
  SESSION_PREFIX,
  SESSION_SCRIPT,
  USER_PREFIX,
} from './session-script.ts';
import type { SessionOwner, SessionState, SessionStore } from './session-store.ts';
import { decodeSession, encodeSession } from './session-text.ts';

export interface RedisSessionStoreOptions {
  readonly redis: Redis;
  readonly logger: Logger;
}

/**
 * Sessions in Redis, shared by all instances: connect-redis on the one connection of the process. Each call is
 * one round trip. What is removed is published in the same step as it is removed, so that neither happens alone.
 */
export function redisSessionStore({ redis, logger }: RedisSessionStoreOptions): SessionStore {
  const run = redis.script(SESSION_SCRIPT);
  const nameOf = (key: string) => SESSION_PREFIX + key;
  const extend = (key: string, idleExpiresAt: number) =>
    run([nameOf(key)], ['extend', String(Date.now()), String(idleExpiresAt)]) as Promise<SessionState>;
  const removeAll = (set: string) => run([set], ['remove-all', String(Date.now())]) as Promise<number>;
  const store = new RedisStore({
    client: clientOf(redis, run),
    prefix: '',
    ttl: ({ idleExpiresAt = 0 }) => Math.ceil((idleExpiresAt - Date.now()) / 1000),
    serializer: { stringify: encodeSession, parse: reader(logger) },
  });
  return Object.assign(store, {
    // The library's own would keep the data and move only the time at which Redis forgets it.
    async touch(id: string, { idleExpiresAt = 0 }: SessionData, callback?: (error?: unknown) => void) {
      const error = await extend(sessionKey(id), idleExpiresAt).then(() => undefined, asError);
      callback?.(error);
    },
    extend,
    async state(key: string): Promise<SessionState> {
      const text = await redis.run((client) => client.get(nameOf(key)));
      if (text === REMOVED) return 'removed';
      return (text !== null && decodeSession(text)?.idleExpiresAt) || 'missing';
    },
    async remove(key: string) {
      await run([nameOf(key)], ['remove', String(Date.now())]);
    },
    removeProviderSession: (providerSession: string) => removeAll(PROVIDER_PREFIX + providerSession),
    removeUser: (userId: string) => removeAll(USER_PREFIX + userId),
    async removedSince({ userId, providerSession }: SessionOwner, since: number) {
      const sets = [
        USER_PREFIX + userId,
        ...(providerSession === undefined ? [] : [PROVIDER_PREFIX + providerSession]),
      ];
      return (await run(sets, ['removed-since', String(Date.now()), String(since)])) === 1;
    },
    listen({ removed, missed }: Parameters<SessionStore['listen']>[0]) {
      void redis.subscribe(CHANNEL, (keys) => removed(keys.split(' ')), missed);
    },
    close() {},
  });
}

const asError = (error: unknown) => error;

/** The commands that connect-redis uses, by session id, as calls of the one connection. */
function clientOf(redis: Redis, run: ReturnType<Redis['script']>) {
  const nameOf = (id: string) => SESSION_PREFIX + sessionKey(id);
  return {
    get: (id: string) => redis.run((client) => client.get(nameOf(id))),
    set: (id: string, text: string, { expiration }: { expiration: { value: number } }) =>
      run([nameOf(id)], ['set', String(Date.now()), text, String(expiration.value * 1000)]),
    del: ([id = '']: string[]) => run([nameOf(id)], ['remove', String(Date.now())]),
  };
}

/** Reads stored texts; what is no session of this version counts as none, and is logged once, without its content. */
function reader(logger: Logger): (text: string) => SessionData {
  let told = false;
  return function read(text) {
    const data = decodeSession(text);
    if (data === null && text !== REMOVED && !told) {
      told = true;
      logger.warn('a stored session is not of the version that this relay reads; it counts as none');
    }
    // The library passes null on as no session.
    return data as SessionData;
  };
}
