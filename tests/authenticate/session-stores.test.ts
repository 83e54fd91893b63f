import { afterAll, afterEach, beforeAll, beforeEach, describe, expect, test } from '@jest/globals';
import { memorySessionStore } from '../../src/authenticate/sessions/memory-session-store.ts';
import { redisSessionStore } from '../../src/authenticate/sessions/redis-session-store.ts';
import { sealer } from '../../src/authenticate/sessions/seal.ts';
import {
  type LiveSession,
  type Session,
  sessionKey,
  startSession,
} from '../../src/authenticate/sessions/session.ts';
import { sessionCodec } from '../../src/authenticate/sessions/session-codec.ts';
import type { SessionStore } from '../../src/authenticate/sessions/session-store.ts';
import { createLogger } from '../../src/logger.ts';
import { type Secret, secret } from '../../src/secret.ts';
import { openRedis, type Redis } from '../../src/storage/redis.ts';
import { until } from '../harness/clock/until.ts';
import {
  connected,
  describeWithRedis,
  type RedisServer,
  startRedis,
  stopRedis,
} from '../harness/redis/redis.ts';

const MINUTE = 60_000;
const LIMITS = { idleMs: 30 * MINUTE, absoluteMs: 480 * MINUTE };

let sessions = 0;
/** A session's key that no other test has used. */
const newKey = () => sessionKey(`id-${++sessions}`.padEnd(32, 'x'));
const session = (userId = 'ada', limits = LIMITS): Session =>
  startSession({ id: userId, name: userId }, limits, Date.now());
/** What a caller of the store has read of the session that was set with this key. */
const known = new Map<string, Session>();
const live = (key: string): LiveSession => ({ ...(known.get(key) ?? session()), key });

/** The tests for every store of sessions. */
function storeContract(open: () => SessionStore, { inMemory = false } = {}): void {
  let store: SessionStore;
  beforeEach(() => {
    store = open();
  });
  afterEach(() => store.close());

  async function storedSession(userId?: string, limits?: typeof LIMITS, more: Partial<Session> = {}) {
    const owner = { userId: userId ?? 'ada', providerSession: more.providerSession };
    const startedAt = await store.startTime(owner);
    const [key, data] = [newKey(), { ...session(userId, limits), startedAt, ...more }];
    known.set(key, data);
    await store.set(key, data);
    return { key, data };
  }
  const begunAt = (providerSession: string, userId?: string) =>
    storedSession(userId, LIMITS, { providerSession });
  const states = (...sessions: { key: string }[]) =>
    Promise.all(sessions.map(({ key }) => store.state(live(key))));
  /** The keys that the store reports as removed from now on. Redis may tell of one again. */
  async function listen(): Promise<string[]> {
    const heard: string[] = [];
    await new Promise<void>((resolve) => {
      const removed = (keys: readonly string[]) =>
        heard.push(...keys.filter((key) => inMemory || !heard.includes(key)));
      const both = { removed, missed: resolve };
      store.listen(both);
      if (inMemory) resolve();
    });
    return heard;
  }

  test('returns a session that was set, and undefined for an unknown key', async () => {
    const { key, data } = await storedSession('ada', LIMITS, { providerSession: 'one', idToken: 'two' });
    expect(await store.get(key)).toEqual(data);
    expect(await store.state(live(key))).toBe(data.idleExpiresAt);
    expect(await store.get(newKey())).toBeUndefined();
    expect(await store.state(live(newKey()))).toBe('missing');
  });

  test('keeps the other fields of a session when it is extended', async () => {
    const user = { id: 'ada', name: '\u2028"idleExpiresAt":1' };
    const { key, data } = await storedSession('ada', LIMITS, { user });
    await store.extend(live(key), data.idleExpiresAt + 1);
    expect(await store.get(key)).toEqual({ ...data, idleExpiresAt: data.idleExpiresAt + 1 });
  });

  test('shares no object with its callers', async () => {
    const { key, data } = await storedSession();
    const { idleExpiresAt } = data;
    Object.assign(data, { idleExpiresAt: 1 });
    Object.assign((await store.get(key)) as Session, { idleExpiresAt: 2 });
    expect((await store.get(key))?.idleExpiresAt).toBe(idleExpiresAt);
  });

  test('never extends a session to an earlier time', async () => {
    const { key, data } = await storedSession();
    const later = data.idleExpiresAt + MINUTE;
    expect(await store.extend(live(key), later)).toBe(later);
    expect(await store.extend(live(key), later - 1)).toBe(later);
    expect(await store.get(key)).toEqual({ ...data, idleExpiresAt: later });
  });

  test('never restores a removed session, neither by extend nor by set', async () => {
    const { key, data } = await storedSession();
    await store.remove(key);
    expect(await store.state(live(key))).toBe('removed');
    expect(await store.extend(live(key), data.idleExpiresAt + 1)).toBe('removed');
    await store.set(key, data);
    expect(await store.get(key)).toBeUndefined();
    await store.remove(key);
    expect(await store.state(live(key))).toBe('removed');
  });

  test('never restores a session that has expired', async () => {
    const { key, data } = await storedSession('ada', { idleMs: 1, absoluteMs: MINUTE });
    await until(() => Date.now() > data.idleExpiresAt);
    expect(await store.extend(live(key), data.idleExpiresAt + MINUTE)).toBe('missing');
    expect((await store.get(key))?.idleExpiresAt ?? data.idleExpiresAt).toBe(data.idleExpiresAt);
  });

  test('answers missing if there is no session to extend', async () => {
    const key = newKey();
    expect(await store.extend(live(key), Date.now() + MINUTE)).toBe('missing');
    expect(await store.get(key)).toBeUndefined();
  });

  test('removes all sessions of a user, also extended ones, and no others', async () => {
    const [one, other, bobs] = [await storedSession(), await storedSession(), await storedSession('bob')];
    await store.extend(live(one.key), one.data.idleExpiresAt + MINUTE);
    expect(await store.removeUser('ada')).toBe(2);
    expect(await store.removeUser('ada')).toBe(0);
    expect(await Promise.all([one, other, bobs].map(({ key }) => store.state(live(key))))).toEqual([
      'removed',
      'removed',
      bobs.data.idleExpiresAt,
    ]);
    const again = await storedSession();
    await store.removeUser('bob');
    expect(await store.state(live(again.key))).toBe(again.data.idleExpiresAt);
  });

  test('removes only the session of the key, permanently', async () => {
    const [one, other] = [await storedSession(), await storedSession()];
    await store.remove(one.key);
    await store.remove(newKey());
    expect(await states(one, other)).toEqual(['removed', other.data.idleExpiresAt]);
    expect(await store.extend(live(one.key), one.data.idleExpiresAt + 1)).toBe('removed');
    expect(await store.set(one.key, one.data)).toBe(false);
    expect(await store.get(one.key)).toBeUndefined();
  });

  test('removes all sessions that began in a session of the provider, also extended ones, permanently', async () => {
    const [one, extended] = [await begunAt('sid 1'), await begunAt('sid 1', 'bob')];
    const others = [await begunAt('sid 2'), await storedSession(), await storedSession('sid 1')];
    await store.extend(live(extended.key), extended.data.idleExpiresAt + MINUTE);
    expect(await store.removeProviderSession('sid 1')).toBe(2);
    expect(await store.removeProviderSession('sid 1')).toBe(0);
    expect(await states(one, extended)).toEqual(['removed', 'removed']);
    expect(await states(...others)).toEqual(others.map(({ data }) => data.idleExpiresAt));
    await store.set(one.key, one.data);
    expect(await store.extend(live(extended.key), extended.data.idleExpiresAt + 2 * MINUTE)).toBe('removed');
    expect(await states(one, extended)).toEqual(['removed', 'removed']);
    const later = await begunAt('sid 1');
    await store.removeProviderSession('sid 3');
    await store.removeUser('sid 1');
    expect(await store.state(live(later.key))).toBe(later.data.idleExpiresAt);
  });

  test('removes a session of the provider by its user, too, and with others of its user by the provider’s session', async () => {
    const [adas, bobs] = [await begunAt('one', 'ada'), await begunAt('one', 'bob')];
    await store.removeUser('ada');
    expect(await states(adas, bobs)).toEqual(['removed', bobs.data.idleExpiresAt]);
    await store.removeProviderSession('one');
    expect(await states(adas, bobs)).toEqual(['removed', 'removed']);
  });

  test('remembers for a while that all sessions of a user, or of a session of the provider, were removed', async () => {
    const before = Date.now();
    const was = (userId: string, providerSession?: string, since = before) =>
      store.removedSince({ userId, providerSession }, since);
    expect(await was('carol', 'three')).toBe(false);
    await store.removeUser('carol');
    await store.removeProviderSession('three');
    expect([await was('carol'), await was('carol', 'four'), await was('dave', 'three')]).toEqual([
      true,
      true,
      true,
    ]);
    expect([await was('dave'), await was('three', 'carol')]).toEqual([false, false]);
    expect(await was('carol', 'three', Date.now() + 1)).toBe(false);
  });

  test('does not store a session that began before all of its user were removed', async () => {
    for (const [userId, providerSession, remove] of [
      ['ada', undefined, () => store.removeUser('ada')],
      ['bob', 'one', () => store.removeProviderSession('one')],
    ] as const) {
      const startedAt = await store.startTime({ userId, providerSession });
      const [key, late] = [newKey(), { ...session(userId), providerSession, startedAt }];
      await remove();
      const heard = await listen();
      expect(await store.set(key, late)).toBe(false);
      expect(await store.get(key)).toBeUndefined();
      const next = { ...late, startedAt: await store.startTime({ userId, providerSession }) };
      const nextKey = newKey();
      expect(await store.set(nextKey, next)).toBe(true);
      expect(await store.get(nextKey)).toEqual(next);
      await store.remove(nextKey);
      await until(() => heard.includes(nextKey));
      expect(heard.filter((one) => one !== key)).toEqual([nextKey]);
    }
  });

  test('finds sessions with any characters in their values', async () => {
    for (const odd of ['half a pair: \ud83d', '\udc00', 'nul \u0000', 'line \u2028', '"\\/{}%d', '🤖 ünï']) {
      const user = { id: 'ada', name: odd };
      const [one, other] = [
        await storedSession('ada', LIMITS, { user }),
        await storedSession('bob', LIMITS, { providerSession: odd, user: { id: 'bob', name: odd } }),
      ];
      await store.removeUser('ada');
      expect([odd, await states(one, other)]).toEqual([odd, ['removed', other.data.idleExpiresAt]]);
      await store.removeProviderSession(odd);
      expect([odd, await store.state(live(other.key))]).toEqual([odd, 'removed']);
    }
  });

  test('reports each session once that is removed by its key or with a session of the provider', async () => {
    const heard = await listen();
    const [one, two, three] = [await begunAt('one'), await begunAt('two'), await begunAt('two')];
    await store.remove(one.key);
    await store.remove(one.key);
    await store.removeProviderSession('one');
    await store.removeProviderSession('two');
    await store.removeProviderSession('two');
    await store.remove(two.key);
    await store.removeUser('ada');
    const last = await storedSession();
    await store.remove(last.key);
    await until(() => heard.includes(last.key));
    expect([heard[0], heard.slice(1, 3).sort(), heard.slice(3)]).toEqual([
      one.key,
      [two.key, three.key].sort(),
      [last.key],
    ]);
  });

  test('reports each session once that is removed by its key or with its user', async () => {
    const heard = await listen();
    const [one, two, three] = [await storedSession('eve'), await storedSession('eve'), await storedSession()];
    await store.remove(three.key);
    await store.remove(three.key);
    await store.remove(newKey());
    await store.removeUser('eve');
    await store.removeUser('eve');
    const last = await storedSession();
    await store.remove(last.key);
    await until(() => heard.includes(last.key));
    expect([heard[0], heard.slice(1, 3).sort(), heard.slice(3)]).toEqual([
      three.key,
      [one.key, two.key].sort(),
      [last.key],
    ]);
  });
}

describe('the sessions in memory', () => {
  storeContract(() => memorySessionStore(), { inMemory: true });
});

const SECRETS = ['first', 'second'].map((text) => secret(`the ${text} secret of the sessions’ test`));
const codec = sessionCodec(sealer(SECRETS, 'sessions'));
const lines: string[] = [];
const logger = createLogger('info', { write: (line: string) => void lines.push(line) });

const options = { logger, codec, absoluteMs: LIMITS.absoluteMs };

describeWithRedis('the sessions in Redis', () => {
  let server: RedisServer;
  let redis: Redis;
  let store: SessionStore;
  beforeAll(async () => {
    server = await startRedis();
    redis = await connected(server.url);
  });
  beforeEach(async () => {
    store = redisSessionStore({ ...options, redis });
    await server.command('FLUSHALL');
    lines.length = 0;
  });
  afterAll(() => {
    redis.close();
    stopRedis();
  });

  storeContract(() => redisSessionStore({ ...options, redis }));

  const set = (key: string, data = session()) => {
    known.set(key, data);
    return store.set(key, data);
  };
  const names = async () => ((await server.command('KEYS', '*')) as string[]).sort();
  const ttlOf = async (name: string) => Number(await server.command('PTTL', name));

  const textOf = async (key: string) => (await server.command('GET', `bot-relay:session:${key}`)) as string;

  test('are encrypted, except for their idle limit and the names of their sets', async () => {
    const key = newKey();
    await set(key, {
      ...session(),
      user: { id: 'ada', name: 'Ada L.' },
      providerSession: 'one',
      idToken: 'two',
    });
    expect(await names()).toEqual([
      'bot-relay:provider-sessions:one',
      `bot-relay:session:${key}`,
      'bot-relay:user-sessions:ada',
    ]);
    const text = await textOf(key);
    expect(JSON.parse(text)).toEqual({
      v: 1,
      idleExpiresAt: expect.any(Number),
      sets: ['bot-relay:user-sessions:ada', 'bot-relay:provider-sessions:one'],
      sealed: expect.stringMatching(/^[\w-]{100,400}$/),
    });
    expect(text).not.toContain('Ada L.');
  });

  test('cannot be read with another key, or if their encrypted part is changed', async () => {
    const [one, other] = [newKey(), newKey()];
    await set(one);
    const text = await textOf(one);
    await server.command('SET', `bot-relay:session:${other}`, text);
    expect(await store.get(other)).toBeUndefined();
    const sealed = JSON.parse(text).sealed as string;
    for (const at of [0, 20, sealed.length - 1]) {
      const changed = sealed.slice(0, at) + (sealed[at] === 'A' ? 'Q' : 'A') + sealed.slice(at + 1);
      await server.command('SET', `bot-relay:session:${one}`, text.replace(sealed, changed));
      expect(await store.get(one)).toBeUndefined();
    }
  });

  test('can be read with each of the secrets, and not without the one that encrypted them', async () => {
    const key = newKey();
    const storeWith = (...secrets: typeof SECRETS) =>
      redisSessionStore({ ...options, redis, codec: sessionCodec(sealer(secrets, 'sessions')) });
    const [first, second] = SECRETS as [Secret, Secret];
    await storeWith(second).set(key, session());
    expect(await storeWith(first, second).get(key)).toBeDefined();
    expect(await storeWith(first).get(key)).toBeUndefined();
  });

  test('expire in Redis together with the set of their user', async () => {
    const key = newKey();
    await set(key);
    const name = `bot-relay:session:${key}`;
    expect(await ttlOf(name)).toBeGreaterThan(29 * MINUTE);
    expect(await ttlOf(name)).toBeLessThanOrEqual(30 * MINUTE);
    await store.extend(live(key), Date.now() + 40 * MINUTE);
    expect(await ttlOf(name)).toBeGreaterThan(39 * MINUTE);
    expect(await ttlOf(name)).toBeLessThanOrEqual(40 * MINUTE);
    // Somewhat longer than the last session, since the clocks of the instances differ.
    expect(await ttlOf('bot-relay:user-sessions:ada')).toBeLessThanOrEqual(42 * MINUTE);
    expect(await ttlOf('bot-relay:user-sessions:ada')).toBeGreaterThan(39 * MINUTE);
    await store.remove(key);
    expect(await ttlOf(name)).toBeGreaterThan(39 * MINUTE);
    expect(await names()).toEqual([name]);
  });

  test('of a user, or of a session of the provider, are remembered as removed as long as one can live', async () => {
    await store.removeUser('ada');
    await store.removeProviderSession('one');
    const marks = ['bot-relay:provider-sessions:one', 'bot-relay:user-sessions:ada'];
    expect((await names()).sort()).toEqual(marks);
    for (const mark of marks) {
      const ms = LIMITS.absoluteMs + MINUTE;
      expect(await ttlOf(mark)).toBeGreaterThan(ms - MINUTE / 2);
      expect(await ttlOf(mark)).toBeLessThanOrEqual(ms);
    }
  });

  test('leave the set of their user when they have expired', async () => {
    await server.command('ZADD', 'bot-relay:user-sessions:ada', String(Date.now() - 2 * MINUTE), 'long-gone');
    const key = newKey();
    await set(key);
    const listed = await server.command('ZRANGE', 'bot-relay:user-sessions:ada', '0', '-1');
    expect(listed).toEqual([key]);
  });

  test('leave the sets of their user and of the provider’s session when they are removed, and both sets expire', async () => {
    const sets = ['bot-relay:provider-sessions:one', 'bot-relay:user-sessions:ada'];
    const listed = async () =>
      Promise.all(
        sets.map(async (name) => ((await server.command('ZRANGE', name, '0', '-1')) as string[]).sort()),
      );
    const [first, second, third] = [newKey(), newKey(), newKey()];
    for (const key of [first, second, third]) await set(key, { ...session(), providerSession: 'one' });
    expect(await listed()).toEqual([[first, second, third].sort(), [first, second, third].sort()]);
    await store.extend(live(first), Date.now() + 40 * MINUTE);
    for (const name of sets) {
      expect(await ttlOf(name)).toBeGreaterThan(40 * MINUTE);
      expect(await ttlOf(name)).toBeLessThanOrEqual(42 * MINUTE);
    }
    await store.remove(second);
    expect(await listed()).toEqual([[first, third].sort(), [first, third].sort()]);
    await store.removeProviderSession('one');
    // The mark that all were removed.
    expect(await listed()).toEqual([['ended'], []]);
    for (const name of sets) expect(await ttlOf(name)).toBeLessThanOrEqual(LIMITS.absoluteMs + MINUTE);
  });

  test('leave the set of the provider’s session when they have expired', async () => {
    const name = 'bot-relay:provider-sessions:one';
    await server.command('ZADD', name, String(Date.now() - 2 * MINUTE), 'long-gone');
    const key = newKey();
    await set(key, { ...session(), providerSession: 'one' });
    expect(await server.command('ZRANGE', name, '0', '-1')).toEqual([key]);
  });

  test('are not stored if they have expired', async () => {
    await set(newKey(), session('ada', { idleMs: 0, absoluteMs: MINUTE }));
    expect(await names()).toEqual([]);
  });

  test.each([
    ['of another version', '{"v":3,"idleExpiresAt":9000000000000,"canary":"canary-in-redis"}'],
    ['without a version', '{"cookie":{},"user":{"id":"ada","name":"ada"},"canary":"canary-in-redis"}'],
    ['that is not JSON', 'canary-in-redis'],
    ['that is null', 'null'],
    ['that is not sealed', '{"v":1,"idleExpiresAt":9000000000000,"user":{"id":"ada","name":"ada"}}'],
  ])('%s count as missing, which is logged once and without their text', async (_what, text) => {
    const [one, other] = [newKey(), newKey()];
    for (const key of [one, other]) await server.command('SET', `bot-relay:session:${key}`, text);
    expect([await store.get(one), await store.get(other)]).toEqual([undefined, undefined]);
    expect(await store.state(live(one))).toBe('missing');
    expect(lines.map((line) => JSON.parse(line))).toEqual([
      { level: 'warn', time: expect.any(String), msg: expect.stringMatching(/cannot read a stored session/) },
    ]);
    await store.remove(one);
    expect(await store.get(one)).toBeUndefined();
  });

  test('that were removed cause no warning in the log', async () => {
    const key = newKey();
    await set(key);
    await store.remove(key);
    expect(await store.get(key)).toBeUndefined();
    expect(lines).toEqual([]);
  });

  test('are not removed if the removal cannot be published', async () => {
    const key = newKey();
    await set(key);
    await server.command('ACL', 'SETUSER', 'mute', 'on', 'nopass', '~*', '+@all', 'resetchannels');
    const mute = await connected(server.url.replace('://', '://mute:any@'));
    const removal = redisSessionStore({ ...options, redis: mute }).remove(key);
    await expect(removal).rejects.toMatchObject({ code: 'session_store_unavailable' });
    mute.close();
    expect(await store.get(key)).toBeDefined();
  });

  test('reject with session_store_unavailable while Redis is out of reach', async () => {
    const key = newKey();
    const lost = openRedis({ url: secret('redis://127.0.0.1:9'), logger });
    const without = redisSessionStore({ ...options, redis: lost });
    const PROBLEM = { code: 'session_store_unavailable' };
    await expect(without.get(key)).rejects.toMatchObject(PROBLEM);
    await expect(without.set(key, session())).rejects.toMatchObject(PROBLEM);
    await expect(without.extend(live(key), Date.now())).rejects.toMatchObject(PROBLEM);
    await expect(without.state(live(key))).rejects.toMatchObject(PROBLEM);
    await expect(without.removeUser('ada')).rejects.toMatchObject(PROBLEM);
    await expect(without.remove(key)).rejects.toMatchObject(PROBLEM);
    await expect(without.removeProviderSession('one')).rejects.toMatchObject(PROBLEM);
    lost.close();
  });
});
