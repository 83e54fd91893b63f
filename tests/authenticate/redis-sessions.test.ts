import { afterAll, afterEach, beforeAll, beforeEach, describe, expect, jest, test } from '@jest/globals';
import { redisSessionStore } from '../../src/authenticate/sessions/redis-session-store.ts';
import { sealer } from '../../src/authenticate/sessions/seal.ts';
import {
  extendedIdleLimit,
  type LiveSession,
  sessionKey,
  startSession,
} from '../../src/authenticate/sessions/session.ts';
import { sessionCodec } from '../../src/authenticate/sessions/session-codec.ts';
import { ENDED, MARK_MS, SESSION_SCRIPT } from '../../src/authenticate/sessions/session-script.ts';
import type { SessionStore } from '../../src/authenticate/sessions/session-store.ts';
import { createLogger } from '../../src/logger.ts';
import { secret } from '../../src/secret.ts';
import { openRedis, type Redis } from '../../src/storage/redis.ts';
import { until } from '../harness/clock/until.ts';
import { connected, describeWithRedis, type RedisServer, startRedis } from '../harness/redis/redis.ts';

const MINUTE = 60_000;
const LIMITS = { idleMs: 30 * MINUTE, absoluteMs: 480 * MINUTE };
const USER_SET = 'bot-relay:user-sessions:ada';
const PROVIDER_SET = 'bot-relay:provider-sessions:one';
const UNAVAILABLE = { code: 'session_store_unavailable' };

const [FIRST, SECOND] = [secret('the first secret of this test'), secret('the second secret of this test')];
const lines: string[] = [];
const logger = createLogger('info', { write: (line: string) => void lines.push(line) });
const codecOf = (...secrets: (typeof FIRST)[]) => sessionCodec(sealer(secrets, 'sessions'));
const options = { logger, codec: codecOf(FIRST), absoluteMs: LIMITS.absoluteMs };

let server: RedisServer;
let redis: Redis;
let store: SessionStore;
beforeAll(async () => {
  server = await startRedis();
  redis = await connected(server.url);
});
beforeEach(async () => {
  await server.command('FLUSHALL');
  lines.length = 0;
  store = redisSessionStore({ ...options, redis });
});
afterEach(() => void jest.restoreAllMocks());
afterAll(async () => {
  redis.close();
  await server.stop();
});

let ids = 0;
/** A session that begins now, before it is stored. */
async function begun(userId = 'ada', providerSession = 'one', limits = LIMITS): Promise<LiveSession> {
  const startedAt = await store.startTime({ userId, providerSession });
  const session = { ...startSession({ id: userId, name: userId }, limits, Date.now()), startedAt };
  return { ...session, providerSession, key: sessionKey(`id-${++ids}`) };
}
const set = ({ key, ...session }: LiveSession, to = store) => to.set(key, session);
async function stored(...of: Parameters<typeof begun>): Promise<LiveSession> {
  const session = await begun(...of);
  await set(session);
  return session;
}
const later = (session: LiveSession) => session.idleExpiresAt + MINUTE;
const nameOf = ({ key }: LiveSession) => `bot-relay:session:${key}`;
const textOf = async (session: LiveSession) => (await server.command('GET', nameOf(session))) as string;
const names = async () => ((await server.command('KEYS', '*')) as string[]).sort();
const listed = async (set: string) => ((await server.command('ZRANGE', set, '0', '-1')) as string[]).sort();
const scoreOf = async (member: string) => Number(await server.command('ZSCORE', USER_SET, member));
/** Expects that the keys expire in more than `from` and at most `to` minutes. */
async function expectTtl(from: number, to: number, ...keys: string[]): Promise<void> {
  for (const key of keys) {
    const ms = Number(await server.command('PTTL', key));
    expect([key, ms > from * MINUTE, ms <= to * MINUTE]).toEqual([key, true, true]);
  }
}
/** A store that may not publish. */
async function muteStore(): Promise<{ mute: SessionStore; close: () => void }> {
  await server.command('ACL', 'SETUSER', 'mute', 'on', 'nopass', '~*', '+@all', 'resetchannels');
  const other = await connected(server.url.replace('://', '://mute:any@'));
  return { mute: redisSessionStore({ ...options, redis: other }), close: other.close };
}

describeWithRedis('the text of a session in Redis', () => {
  test('is encrypted, except for its idle limit and the names of its sets', async () => {
    const session = await begun();
    await set({ ...session, user: { id: 'ada', name: 'Ada L.' }, idToken: 'two' });
    expect(await names()).toEqual([PROVIDER_SET, nameOf(session), USER_SET]);
    expect(JSON.parse(await textOf(session))).toEqual({
      v: 1,
      idleExpiresAt: session.idleExpiresAt,
      sets: [USER_SET, PROVIDER_SET],
      sealed: expect.stringMatching(/^[\w-]{100,400}$/),
    });
  });

  test('cannot be read with another key, if its encrypted part is changed, or without its secret', async () => {
    const [one, other] = [await stored(), await begun()];
    const text = await textOf(one);
    await server.command('SET', nameOf(other), text);
    expect(await store.get(other.key)).toBeUndefined();
    const sealed = JSON.parse(text).sealed as string;
    for (const at of [0, 20, sealed.length - 1]) {
      const changed = sealed.slice(0, at) + (sealed[at] === 'A' ? 'Q' : 'A') + sealed.slice(at + 1);
      await server.command('SET', nameOf(one), text.replace(sealed, changed));
      expect(await store.get(one.key)).toBeUndefined();
    }
    const storeWith = (...secrets: (typeof FIRST)[]) =>
      redisSessionStore({ ...options, redis, codec: codecOf(...secrets) });
    await set(one, storeWith(SECOND));
    expect(await storeWith(FIRST, SECOND).get(one.key)).toBeDefined();
    expect(await storeWith(FIRST).get(one.key)).toBeUndefined();
  });

  test.each([
    ['of another version', '{"v":3,"idleExpiresAt":9000000000000,"canary":"canary-in-redis"}'],
    ['without a version', '{"cookie":{},"user":{"id":"ada","name":"ada"},"canary":"canary-in-redis"}'],
    ['that is not JSON', 'canary-in-redis'],
    ['that is null', 'null'],
    ['that is not sealed', '{"v":1,"idleExpiresAt":9000000000000,"user":{"id":"ada","name":"ada"}}'],
  ])('%s counts as missing, which is logged once and without the text', async (_what, text) => {
    const [one, other] = [await begun(), await begun()];
    for (const session of [one, other]) await server.command('SET', nameOf(session), text);
    expect([await store.get(one.key), await store.get(other.key)]).toEqual([undefined, undefined]);
    expect(await store.state(one)).toBe('missing');
    expect(lines.map((line) => JSON.parse(line))).toEqual([
      { level: 'warn', time: expect.any(String), msg: expect.stringMatching(/cannot read a stored session/) },
    ]);
    await store.remove(one.key);
    expect(await store.get(one.key)).toBeUndefined();
  });

  test('expires with the session, together with its sets, and stays as a mark when it was removed', async () => {
    const session = await stored();
    await expectTtl(29, 30, nameOf(session));
    await store.extend(session, Date.now() + 40 * MINUTE);
    await expectTtl(39, 40, nameOf(session));
    // Somewhat longer than the last session, since the clocks of the instances differ.
    await expectTtl(40, 42, USER_SET, PROVIDER_SET);
    await store.remove(session.key);
    await expectTtl(39, 40, nameOf(session));
    expect([await names(), await store.get(session.key), lines]).toEqual([[nameOf(session)], undefined, []]);
  });

  test('is not stored if it has expired', async () => {
    expect(await set(await begun('ada', 'one', { idleMs: 0, absoluteMs: MINUTE }))).toBe(false);
    expect(await names()).toEqual([]);
  });
});

describeWithRedis('the sets of a user and of a session of the provider', () => {
  test('lose the sessions that are removed or have expired', async () => {
    for (const set of [USER_SET, PROVIDER_SET])
      await server.command('ZADD', set, String(Date.now() - 2 * MINUTE), 'long-gone');
    const [first, second] = [await stored(), await stored()];
    const both = [first.key, second.key].sort();
    expect([await listed(USER_SET), await listed(PROVIDER_SET)]).toEqual([both, both]);
    await store.remove(second.key);
    expect([await listed(USER_SET), await listed(PROVIDER_SET)]).toEqual([[first.key], [first.key]]);
    await store.removeProviderSession('one');
    expect([await listed(USER_SET), await listed(PROVIDER_SET)]).toEqual([[], ['ended']]);
  });

  test('remember for as long as a session can live that all were removed, even if there was none', async () => {
    await store.removeUser('ada');
    await store.removeProviderSession('one');
    expect(await names()).toEqual([PROVIDER_SET, USER_SET]);
    await expectTtl(480, 481, USER_SET, PROVIDER_SET);
  });
});

describeWithRedis('a session is not removed', () => {
  test('if the removal cannot be published', async () => {
    const session = await stored();
    const { mute, close } = await muteStore();
    await expect(mute.remove(session.key)).rejects.toMatchObject(UNAVAILABLE);
    await expect(mute.removeUser('ada')).rejects.toMatchObject(UNAVAILABLE);
    close();
    expect(await store.hasEnded(session)).toBe(false);
    expect(await store.extend(session, later(session))).toBe(later(session));
    expect(await store.get(session.key)).toBeDefined();
  });

  test('nor found while Redis is out of reach: every call rejects', async () => {
    const session = await begun();
    const lost = openRedis({ url: secret('redis://127.0.0.1:9'), logger });
    const without = redisSessionStore({ ...options, redis: lost });
    for (const asked of [
      ...[without.get(session.key), set(session, without), without.extend(session, Date.now())],
      ...[without.state(session), without.removeUser('ada'), without.remove(session.key)],
      without.removeProviderSession('one'),
    ])
      await expect(asked).rejects.toMatchObject(UNAVAILABLE);
    lost.close();
  });
});

describeWithRedis('a decrypted session is forgotten', () => {
  test('by the instance that removes it, and by others that hear of it', async () => {
    const forgotten: string[][] = [[], []];
    const [one, other] = forgotten.map((keys) => {
      const codec = { ...options.codec, forget: (key: string) => void keys.push(key) };
      return redisSessionStore({ ...options, redis, codec });
    }) as [SessionStore, SessionStore];
    await new Promise<void>((missed) => other.listen({ removed() {}, missed }));
    const [first, second] = [await stored(), await stored()];
    await one.remove(first.key);
    expect(forgotten[0]).toEqual([first.key]);
    await until(() => forgotten[1]?.includes(first.key) === true);
    await one.removeUser('ada');
    await until(() => forgotten[1]?.includes(second.key) === true);
  });
});

/** What `work` does at an instance whose clock is `ms` ahead. */
async function withClock<T>(ms: number, work: () => Promise<T>): Promise<T> {
  const { now } = Date;
  const clock = jest.spyOn(Date, 'now').mockImplementation(() => now() + ms);
  try {
    return await work();
  } finally {
    clock.mockRestore();
  }
}

describeWithRedis('at an instance with another clock', () => {
  const SHORT = { ...LIMITS, idleMs: 3 * MINUTE };
  const stored3 = () => stored('ada', 'one', SHORT);
  const extend = (session: LiveSession) =>
    store.extend(session, extendedIdleLimit(session, SHORT, Date.now()));

  test.each([-60, -5, -1.5, 2])('that is %d minutes ahead, a session stays in its set', async (minutes) => {
    const session = await stored3();
    const before = await scoreOf(session.key);
    expect(typeof (await withClock(minutes * MINUTE, () => extend(session)))).toBe('number');
    expect(await scoreOf(session.key)).toBeGreaterThanOrEqual(before);
    expect(await store.extend(session, session.idleExpiresAt - 2 * MINUTE)).toBeGreaterThanOrEqual(
      session.idleExpiresAt,
    );
    expect(await scoreOf(session.key)).toBeGreaterThanOrEqual(before);
    expect(await withClock(minutes * MINUTE, () => store.removeUser('ada'))).toBe(1);
    expect(await store.get(session.key)).toBeUndefined();
  });

  test.each([-60, 60])('that is %d minutes ahead, a session begins that lives at others', async (minutes) => {
    const session = await withClock(minutes * MINUTE, () => stored());
    expect(await store.get(session.key)).toBeDefined();
    expect(typeof (await store.state(session))).toBe('number');
    expect(typeof (await extend(session))).toBe('number');
    const here = await stored();
    expect(await withClock(minutes * MINUTE, () => store.get(here.key))).toBeDefined();
  });

  test('that is slow, a session is in the set as long as its text lives, which is longer', async () => {
    const session = await withClock(-5 * MINUTE, stored3);
    await server.command('ZADD', USER_SET, String(Date.now() - 2 * MINUTE), 'long-gone');
    await server.command('PEXPIRE', nameOf(session), String(MINUTE));
    await withClock(-4 * MINUTE, () => extend(session));
    await expectTtl(2, 4, nameOf(session));
    const left = Number(await server.command('PTTL', nameOf(session)));
    expect((await scoreOf(session.key)) - Date.now()).toBeGreaterThanOrEqual(left - 1_000);
    expect(await listed(USER_SET)).toEqual([session.key]);
  });

  test('that is fast, the removal of all is before a sign-in that begins later', async () => {
    await withClock(2 * MINUTE, () => store.removeUser('ada'));
    const since = (await store.now()) + 1;
    expect(await store.removedSince({ userId: 'ada', providerSession: undefined }, since)).toBe(false);
  });
});

/** A store whose instance is lost after it has ended the sessions of a set, and before it removes them. */
function dyingStore(): SessionStore {
  const script = (lua: string): ReturnType<Redis['script']> => {
    const run = redis.script(lua);
    if (lua !== SESSION_SCRIPT) return run;
    return (keys, args) => (args[0] === 'remove' ? new Promise(() => {}) : run(keys, args));
  };
  return redisSessionStore({ ...options, redis: { ...redis, script } });
}

describe.each<[string, (from: SessionStore) => Promise<number>, string]>([
  ['a user', (from) => from.removeUser('ada'), USER_SET],
  ['a session of the provider', (from) => from.removeProviderSession('one'), PROVIDER_SET],
])('if an instance is lost while it removes the sessions of %s', (_of, remove, set) => {
  describeWithRedis('with Redis', () => {
    test('all have ended that began before, and the next removal finishes it', async () => {
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
      await expectTtl(480, 481, set);
      const owner = { userId: 'ada', providerSession: 'one' };
      expect(await store.removedSince(owner, first.startedAt)).toBe(true);
      expect(await remove(store)).toBe(1);
      expect(await store.get(first.key)).toBeUndefined();
    });

    test('those that begin later live, and so do those of others', async () => {
      const [before, others] = [await stored(), await stored('bob', 'two')];
      void remove(dyingStore());
      await until(() => store.hasEnded(before));
      for (const session of [await stored(), others]) {
        expect(await store.hasEnded(session)).toBe(false);
        expect(await store.extend(session, later(session))).toBe(later(session));
        expect(await store.state(session)).toBe(later(session));
      }
      expect(await store.hasEnded(before)).toBe(true);
    });
  });
});

describeWithRedis('after all sessions of a user were removed and the clock of Redis went back', () => {
  test('later sessions live, and the next removal ends them', async () => {
    const before = await stored();
    await store.removeUser('ada');
    // As if a master whose clock was ahead had written the mark.
    const ahead = Date.now() + MINUTE / 2 + MARK_MS;
    await server.command('ZADD', USER_SET, String(ahead), ENDED);
    const next = await stored();
    expect(await store.state(next)).toBe(next.idleExpiresAt);
    expect(await store.extend(next, later(next))).toBe(later(next));
    expect(await store.hasEnded(before)).toBe(true);
    void dyingStore().removeUser('ada');
    await until(async () => (await scoreOf(ENDED)) !== ahead);
    expect(await store.hasEnded(next)).toBe(true);
    expect(await scoreOf(ENDED)).toBe(ahead + 1);
    expect(await store.hasEnded(await stored())).toBe(false);
  });
});
