import { afterAll, beforeAll, beforeEach, expect, test } from '@jest/globals';
import { redisSessionStore } from '../../src/authenticate/sessions/redis-session-store.ts';
import { sealer } from '../../src/authenticate/sessions/seal.ts';
import { type LiveSession, sessionKey, startSession } from '../../src/authenticate/sessions/session.ts';
import { sessionCodec } from '../../src/authenticate/sessions/session-codec.ts';
import { SESSION_SCRIPT } from '../../src/authenticate/sessions/session-script.ts';
import type { SessionStore } from '../../src/authenticate/sessions/session-store.ts';
import { createLogger } from '../../src/logger.ts';
import { secret } from '../../src/secret.ts';
import type { Redis, RedisScript } from '../../src/storage/redis.ts';
import { until } from '../harness/clock/until.ts';
import { connected, describeWithRedis, type RedisServer, startRedis } from '../harness/redis/redis.ts';

const MINUTE = 60_000;
const LIMITS = { idleMs: 30 * MINUTE, absoluteMs: 480 * MINUTE };
const MARK = { userId: 'ada', providerSession: 'one' };

const codec = sessionCodec(sealer([secret('the secret of the sessions’ test')], 'sessions'));
const options = { codec, logger: createLogger('silent'), absoluteMs: LIMITS.absoluteMs };

let server: RedisServer;
let redis: Redis;
let store: SessionStore;
beforeAll(async () => {
  server = await startRedis();
  redis = await connected(server.url);
});
beforeEach(async () => {
  await server.command('FLUSHALL');
  store = redisSessionStore({ ...options, redis });
});
afterAll(async () => {
  redis.close();
  await server.stop();
});

let ids = 0;
const newKey = () => sessionKey(`id-${++ids}`);

/** A session that begins now, before it is stored. */
async function begun(userId = 'ada', providerSession = 'one'): Promise<LiveSession> {
  const session = startSession({ id: userId, name: userId }, LIMITS, Date.now());
  return {
    ...session,
    startedAt: await store.startTime({ userId, providerSession }),
    providerSession,
    key: newKey(),
  };
}

async function stored(userId?: string, providerSession?: string): Promise<LiveSession> {
  const session = await begun(userId, providerSession);
  const { key, ...data } = session;
  await store.set(key, data);
  return session;
}

const later = (session: LiveSession) => session.idleExpiresAt + MINUTE;
const ttlOf = async (name: string) => Number(await server.command('PTTL', name));
const removals = [
  ['a user', (from: SessionStore) => from.removeUser('ada'), 'bot-relay:user-sessions:ada'],
  [
    'a session of the provider',
    (from: SessionStore) => from.removeProviderSession('one'),
    'bot-relay:provider-sessions:one',
  ],
] as [string, (from: SessionStore) => Promise<number>, string][];

/** A store whose instance is lost after it has ended the sessions of a set, and before it removes them. */
function dyingStore(): SessionStore {
  const script = (lua: string): RedisScript => {
    const run = redis.script(lua);
    if (lua !== SESSION_SCRIPT) return run;
    return (keys, args) => (args[0] === 'remove' ? new Promise(() => {}) : run(keys, args));
  };
  return redisSessionStore({ ...options, redis: { ...redis, script } });
}

describeWithRedis('if an instance is lost while it removes the sessions', () => {
  test.each(removals)('of %s, all have ended that began before', async (_of, remove, set) => {
    const heard: string[] = [];
    await new Promise<void>((missed) => {
      store.listen({ removed: (keys) => heard.push(...keys), missed });
    });
    const [first, second] = [await stored(), await stored()];
    const underWay = await begun();
    void remove(dyingStore());
    await until(() => heard.length > 0);
    expect(heard.sort()).toEqual([first.key, second.key].sort());
    expect(await store.get(first.key)).toBeDefined();
    expect(await store.hasEnded(first)).toBe(true);
    expect(await store.state(first)).toBe('removed');
    expect(await store.extend(second, later(second))).toBe('removed');
    expect(await store.get(second.key)).toBeUndefined();
    const { key, ...data } = underWay;
    expect(await store.set(key, data)).toBe(false);
    expect(await store.hasEnded(underWay)).toBe(true);
    expect(await ttlOf(set)).toBeGreaterThan(LIMITS.absoluteMs);
    expect(await store.removedSince(MARK, first.startedAt)).toBe(true);
  });

  test.each(removals)(
    'of %s, those that begin later live, and so do those of others',
    async (_of, remove) => {
      const [before, others] = [await stored(), await stored('bob', 'two')];
      void remove(dyingStore());
      await until(() => store.hasEnded(before));
      const after = await stored();
      for (const session of [after, others]) {
        expect(await store.hasEnded(session)).toBe(false);
        expect(await store.extend(session, later(session))).toBe(later(session));
        expect(await store.state(session)).toBe(later(session));
      }
      expect(await store.hasEnded(before)).toBe(true);
    },
  );
});

describeWithRedis('the next removal', () => {
  test.each(removals)('of all sessions of %s finishes a removal that was cut off', async (_of, remove) => {
    const session = await stored();
    void remove(dyingStore());
    await until(() => store.hasEnded(session));
    expect(await remove(store)).toBe(1);
    expect(await store.get(session.key)).toBeUndefined();
  });
});

describeWithRedis('the mark of sessions that were removed together', () => {
  test.each(removals)('of %s lasts as long as a session, even if none is left', async (_of, remove, set) => {
    await stored();
    expect(await remove(store)).toBe(1);
    expect(await ttlOf(set)).toBeGreaterThan(LIMITS.absoluteMs);
    expect(await ttlOf(set)).toBeLessThanOrEqual(LIMITS.absoluteMs + MINUTE);
    expect(await server.command('ZRANGE', set, '0', '-1')).toEqual(['ended']);
  });

  test('is not set if the removal cannot be published', async () => {
    const session = await stored();
    await server.command('ACL', 'SETUSER', 'mute', 'on', 'nopass', '~*', '+@all', 'resetchannels');
    const mute = await connected(server.url.replace('://', '://mute:any@'));
    const removal = redisSessionStore({ ...options, redis: mute }).removeUser('ada');
    await expect(removal).rejects.toMatchObject({ code: 'session_store_unavailable' });
    mute.close();
    expect(await store.hasEnded(session)).toBe(false);
    expect(await store.extend(session, later(session))).toBe(later(session));
  });
});
