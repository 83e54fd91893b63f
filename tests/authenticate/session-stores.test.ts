import { setTimeout as sleep } from 'node:timers/promises';
import { afterAll, afterEach, beforeAll, beforeEach, describe, expect, test } from '@jest/globals';
import type { SessionData } from 'express-session';
import { MemorySessionStore } from '../../src/authenticate/sessions/memory-session-store.ts';
import { redisSessionStore } from '../../src/authenticate/sessions/redis-session-store.ts';
import { startSession } from '../../src/authenticate/sessions/session-data.ts';
import { sessionKey } from '../../src/authenticate/sessions/session-key.ts';
import type { SessionStore } from '../../src/authenticate/sessions/session-store.ts';
import { createLogger } from '../../src/logger.ts';
import { secret } from '../../src/secret.ts';
import { openRedis, type Redis } from '../../src/storage/redis.ts';
import { until } from '../support/pair.ts';
import { describeWithRedis, type RedisServer, startRedis, stopRedis } from '../support/redis.ts';
import { stored } from '../support/sessions.ts';

const MINUTE = 60_000;
const LIMITS = { idleMs: 30 * MINUTE, absoluteMs: 480 * MINUTE };

let sessions = 0;
/** An id that no other test has used. */
const newId = () => `id-${++sessions}`.padEnd(32, 'x');
const session = (userId = 'ada', limits = LIMITS) =>
  ({
    cookie: { originalMaxAge: null },
    ...startSession({ id: userId, name: userId }, limits, Date.now()),
  }) as SessionData & { idleExpiresAt: number };
/** Calls back from a store's method, as a promise of the error. */
const done = (act: (callback: (error?: unknown) => void) => void) =>
  new Promise<unknown>((resolve) => act((error) => resolve(error ?? undefined)));

/** What every store of sessions must do. */
function storeContract(open: () => SessionStore): void {
  let store: SessionStore;
  beforeEach(() => {
    store = open();
  });
  afterEach(() => store.close());

  async function storedSession(userId?: string, limits?: typeof LIMITS, more: Partial<SessionData> = {}) {
    const [id, data] = [newId(), { ...session(userId, limits), ...more }];
    expect(await done((callback) => store.set(id, data, callback))).toBeUndefined();
    return { id, key: sessionKey(id), data };
  }
  const begunAt = (providerSession: string, userId?: string) =>
    storedSession(userId, LIMITS, { providerSession });
  const states = (...sessions: { key: string }[]) => Promise.all(sessions.map(({ key }) => store.state(key)));
  /** What the store tells of removals from now on. */
  async function listen(): Promise<string[]> {
    const heard: string[] = [];
    await new Promise<void>((resolve) => {
      const both = { removed: (keys: readonly string[]) => heard.push(...keys), missed: resolve };
      store.listen(both);
      if (store instanceof MemorySessionStore) resolve();
    });
    return heard;
  }
  const remove = (id: string) => done((callback) => store.destroy(id, callback));

  test('gives back what was set, and null for what was not', async () => {
    const { id, key, data } = await storedSession();
    expect(await stored(store, id)).toEqual(data);
    expect(await store.state(key)).toBe(data.idleExpiresAt);
    expect(await stored(store, newId())).toBeNull();
    expect(await store.state(sessionKey(newId()))).toBe('missing');
  });

  test('keeps what a session holds besides, but nothing of the cookie’s settings', async () => {
    const [id, data] = [newId(), { ...session(), more: { list: [], text: '\u2028"idleExpiresAt":1' } }];
    const cookie = { originalMaxAge: 1, path: '/elsewhere', secure: true };
    await done((callback) => store.set(id, { ...data, cookie } as unknown as SessionData, callback));
    await store.extend(sessionKey(id), data.idleExpiresAt + 1);
    expect(await stored(store, id)).toEqual({ ...data, idleExpiresAt: data.idleExpiresAt + 1 });
  });

  test('shares no object with anybody', async () => {
    const { id, data } = await storedSession();
    const { idleExpiresAt } = data;
    data.idleExpiresAt = 1;
    Object.assign((await stored(store, id)) as SessionData, { idleExpiresAt: 2 });
    expect((await stored(store, id))?.idleExpiresAt).toBe(idleExpiresAt);
  });

  test('answers after the call, never within it', async () => {
    const order: string[] = [];
    const id = newId();
    const answered = Promise.all([
      done((callback) => store.get(id, () => callback(order.push('get')))),
      done((callback) => store.set(id, session(), () => callback(order.push('set')))),
      done((callback) => store.touch(id, session(), () => callback(order.push('touch')))),
      done((callback) => store.destroy(id, () => callback(order.push('destroy')))),
    ]);
    order.push('called');
    await answered;
    expect(order[0]).toBe('called');
    expect(order.sort()).toEqual(['called', 'destroy', 'get', 'set', 'touch']);
  });

  test('extends a session forward and never back', async () => {
    const { id, key, data } = await storedSession();
    const later = data.idleExpiresAt + MINUTE;
    expect(await store.extend(key, later)).toBe(later);
    expect(await store.extend(key, later - 1)).toBe(later);
    expect(await done((callback) => store.touch(id, data, callback))).toBeUndefined();
    expect(await stored(store, id)).toEqual({ ...data, idleExpiresAt: later });
    const latest = { ...data, idleExpiresAt: later + MINUTE };
    expect(await done((callback) => store.touch(id, latest, callback))).toBeUndefined();
    expect(await stored(store, id)).toEqual(latest);
  });

  test('never brings a removed session back, neither by touch nor by extend nor by set (G6)', async () => {
    const { id, key, data } = await storedSession();
    expect(await remove(id)).toBeUndefined();
    expect(await store.state(key)).toBe('removed');
    expect(await done((callback) => store.touch(id, data, callback))).toBeUndefined();
    expect(await store.extend(key, data.idleExpiresAt + 1)).toBe('removed');
    expect(await done((callback) => store.set(id, data, callback))).toBeUndefined();
    expect(await stored(store, id)).toBeNull();
    expect(await remove(id)).toBeUndefined();
    expect(await store.state(key)).toBe('removed');
  });

  test('brings no session back that has run out', async () => {
    const { id, key, data } = await storedSession('ada', { idleMs: 30, absoluteMs: MINUTE });
    await sleep(50);
    expect(await store.extend(key, data.idleExpiresAt + MINUTE)).toBe('missing');
    await done((callback) => store.touch(id, { ...data, idleExpiresAt: Date.now() + MINUTE }, callback));
    expect((await stored(store, id))?.idleExpiresAt ?? data.idleExpiresAt).toBe(data.idleExpiresAt);
  });

  test('has nothing to extend where there is nothing', async () => {
    const id = newId();
    expect(await store.extend(sessionKey(id), Date.now() + MINUTE)).toBe('missing');
    expect(await done((callback) => store.touch(id, session(), callback))).toBeUndefined();
    expect(await stored(store, id)).toBeNull();
  });

  test('removes all sessions of a user, those that were extended too, and nobody else’s', async () => {
    const [one, other, bobs] = [await storedSession(), await storedSession(), await storedSession('bob')];
    await store.extend(one.key, one.data.idleExpiresAt + MINUTE);
    expect(await store.removeUser('ada')).toBe(2);
    expect(await store.removeUser('ada')).toBe(0);
    expect(await Promise.all([one, other, bobs].map(({ key }) => store.state(key)))).toEqual([
      'removed',
      'removed',
      bobs.data.idleExpiresAt,
    ]);
    const again = await storedSession();
    await store.removeUser('bob');
    expect(await store.state(again.key)).toBe(again.data.idleExpiresAt);
  });

  test('removes a session by its key, and no other, for good (G6)', async () => {
    const [one, other] = [await storedSession(), await storedSession()];
    await store.remove(one.key);
    await store.remove(sessionKey(newId()));
    expect(await states(one, other)).toEqual(['removed', other.data.idleExpiresAt]);
    expect(await store.extend(one.key, one.data.idleExpiresAt + 1)).toBe('removed');
    await done((callback) => store.set(one.id, one.data, callback));
    await done((callback) => store.touch(one.id, one.data, callback));
    expect(await stored(store, one.id)).toBeNull();
  });

  test('removes all that began in a session of the provider, extended ones too, for good (G6)', async () => {
    const [one, extended] = [await begunAt('sid 1'), await begunAt('sid 1', 'bob')];
    const others = [await begunAt('sid 2'), await storedSession(), await storedSession('sid 1')];
    await store.extend(extended.key, extended.data.idleExpiresAt + MINUTE);
    expect(await store.removeProviderSession('sid 1')).toBe(2);
    expect(await store.removeProviderSession('sid 1')).toBe(0);
    expect(await states(one, extended)).toEqual(['removed', 'removed']);
    expect(await states(...others)).toEqual(others.map(({ data }) => data.idleExpiresAt));
    await done((callback) => store.set(one.id, one.data, callback));
    expect(await store.extend(extended.key, extended.data.idleExpiresAt + 2 * MINUTE)).toBe('removed');
    expect(await states(one, extended)).toEqual(['removed', 'removed']);
    const later = await begunAt('sid 1');
    await store.removeProviderSession('sid 3');
    await store.removeUser('sid 1');
    expect(await store.state(later.key)).toBe(later.data.idleExpiresAt);
  });

  test('removes by its user a session that began at the provider, and the other way round', async () => {
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

  test('finds every session, whatever characters are in what it holds', async () => {
    for (const odd of ['half a pair: \ud83d', '\udc00', 'nul \u0000', 'line \u2028', '"\\/{}%d', '🤖 ünï']) {
      const user = { id: 'ada', name: odd };
      const [one, other] = [
        await storedSession('ada', LIMITS, { user }),
        await storedSession('bob', LIMITS, { providerSession: odd, user: { id: 'bob', name: odd } }),
      ];
      await store.removeUser('ada');
      expect([odd, await states(one, other)]).toEqual([odd, ['removed', other.data.idleExpiresAt]]);
      await store.removeProviderSession(odd);
      expect([odd, await store.state(other.key)]).toEqual([odd, 'removed']);
    }
  });

  test('tells once of what is removed by its key or with a session of the provider', async () => {
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

  test('tells whoever listens of each session that is removed, once', async () => {
    const heard = await listen();
    const [one, two, three] = [await storedSession('eve'), await storedSession('eve'), await storedSession()];
    await remove(three.id);
    await remove(three.id);
    await remove(newId());
    await store.removeUser('eve');
    await store.removeUser('eve');
    const last = await storedSession();
    await remove(last.id);
    await until(() => heard.includes(last.key));
    expect([heard[0], heard.slice(1, 3).sort(), heard.slice(3)]).toEqual([
      three.key,
      [one.key, two.key].sort(),
      [last.key],
    ]);
  });
}

describe('the sessions in memory', () => {
  storeContract(() => new MemorySessionStore());
});

const lines: string[] = [];
const logger = createLogger('info', { write: (line: string) => void lines.push(line) });

describeWithRedis('the sessions in Redis', () => {
  let server: RedisServer;
  let redis: Redis;
  let store: SessionStore;
  beforeAll(async () => {
    server = await startRedis();
    redis = openRedis({ url: secret(server.url), logger });
    while (!(await redis.answers())) await sleep(5);
  });
  beforeEach(async () => {
    store = redisSessionStore({ redis, logger });
    await server.command('FLUSHALL');
    lines.length = 0;
  });
  afterAll(() => {
    redis.close();
    stopRedis();
  });

  storeContract(() => redisSessionStore({ redis, logger }));

  const set = (id: string, data = session()) => done((callback) => store.set(id, data, callback));
  const names = async () => ((await server.command('KEYS', '*')) as string[]).sort();
  const ttlOf = async (name: string) => Number(await server.command('PTTL', name));

  test('are small, have a version, and lie under a name from which nobody gets to the id', async () => {
    const id = newId();
    await set(id);
    const name = `bot-relay:session:${sessionKey(id)}`;
    expect(await names()).toEqual([name, 'bot-relay:user-sessions:ada']);
    const text = (await server.command('GET', name)) as string;
    expect(JSON.parse(text)).toEqual({
      v: 1,
      idleExpiresAt: expect.any(Number),
      absoluteExpiresAt: expect.any(Number),
      user: { id: 'ada', name: 'ada' },
    });
    const all = JSON.stringify([
      await names(),
      text,
      await server.command('ZRANGE', 'bot-relay:user-sessions:ada', '0', '-1'),
    ]);
    expect(all).not.toContain(id);
    expect(sessionKey(id)).toMatch(/^[A-Za-z0-9_-]{43}$/);
  });

  test('leave Redis by themselves when they run out, with what is known of their user', async () => {
    const id = newId();
    await set(id);
    const name = `bot-relay:session:${sessionKey(id)}`;
    expect(await ttlOf(name)).toBeGreaterThan(29 * MINUTE);
    expect(await ttlOf(name)).toBeLessThanOrEqual(30 * MINUTE);
    await store.extend(sessionKey(id), Date.now() + 40 * MINUTE);
    expect(await ttlOf(name)).toBeGreaterThan(39 * MINUTE);
    expect(await ttlOf(name)).toBeLessThanOrEqual(40 * MINUTE);
    // A moment longer than the last session, for the clocks of the instances.
    expect(await ttlOf('bot-relay:user-sessions:ada')).toBeLessThanOrEqual(42 * MINUTE);
    expect(await ttlOf('bot-relay:user-sessions:ada')).toBeGreaterThan(39 * MINUTE);
    await done((callback) => store.destroy(id, callback));
    expect(await ttlOf(name)).toBeGreaterThan(39 * MINUTE);
    expect(await names()).toEqual([name]);
  });

  test('leave a mark for a minute when all of a user, or of a session of the provider, are removed', async () => {
    await store.removeUser('ada');
    await store.removeProviderSession('one');
    const marks = [
      'bot-relay:emptied:bot-relay:provider-sessions:one',
      'bot-relay:emptied:bot-relay:user-sessions:ada',
    ];
    expect((await names()).sort()).toEqual(marks);
    for (const mark of marks) {
      expect(await ttlOf(mark)).toBeGreaterThan(MINUTE / 2);
      expect(await ttlOf(mark)).toBeLessThanOrEqual(MINUTE);
    }
  });

  test('leave the list of their user when they have run out', async () => {
    await server.command('ZADD', 'bot-relay:user-sessions:ada', String(Date.now() - 2 * MINUTE), 'long-gone');
    const id = newId();
    await set(id);
    const listed = await server.command('ZRANGE', 'bot-relay:user-sessions:ada', '0', '-1');
    expect(listed).toEqual([sessionKey(id)]);
  });

  test('leave the sets of their user and of the provider’s session when they are removed, and both sets expire', async () => {
    const sets = ['bot-relay:provider-sessions:one', 'bot-relay:user-sessions:ada'];
    const listed = async () =>
      Promise.all(
        sets.map(async (name) => ((await server.command('ZRANGE', name, '0', '-1')) as string[]).sort()),
      );
    const ids = [newId(), newId(), newId()] as const;
    for (const id of ids) await set(id, { ...session(), providerSession: 'one' } as never);
    const [first, second, third] = ids.map(sessionKey) as [string, string, string];
    expect(await listed()).toEqual([[first, second, third].sort(), [first, second, third].sort()]);
    await store.extend(first, Date.now() + 40 * MINUTE);
    for (const name of sets) {
      expect(await ttlOf(name)).toBeGreaterThan(40 * MINUTE);
      expect(await ttlOf(name)).toBeLessThanOrEqual(42 * MINUTE);
    }
    await store.remove(second);
    expect(await listed()).toEqual([[first, third].sort(), [first, third].sort()]);
    await store.removeProviderSession('one');
    expect((await names()).filter((name) => sets.includes(name))).toEqual([]);
  });

  test('leave the list of the provider’s session when they have run out', async () => {
    const name = 'bot-relay:provider-sessions:one';
    await server.command('ZADD', name, String(Date.now() - 2 * MINUTE), 'long-gone');
    const id = newId();
    await set(id, { ...session(), providerSession: 'one' } as never);
    expect(await server.command('ZRANGE', name, '0', '-1')).toEqual([sessionKey(id)]);
  });

  test('are not kept if they have no limits, or have run out', async () => {
    expect(await set(newId(), { cookie: { originalMaxAge: null } } as never)).toBeUndefined();
    expect(await set(newId(), session('ada', { idleMs: 0, absoluteMs: MINUTE }))).toBeUndefined();
    expect(await names()).toEqual([]);
  });

  test.each([
    ['of another version', '{"v":2,"idleExpiresAt":9000000000000,"canary":"canary-in-redis"}'],
    ['without a version', '{"cookie":{},"user":{"id":"ada","name":"ada"},"canary":"canary-in-redis"}'],
    ['that is no JSON', 'canary-in-redis'],
    ['that is null', 'null'],
    ['whose user is none', '{"v":1,"idleExpiresAt":9000000000000,"user":"canary-in-redis"}'],
  ])('%s count as none; the log says so once and shows nothing of them', async (_what, text) => {
    const [one, other] = [newId(), newId()];
    for (const id of [one, other]) await server.command('SET', `bot-relay:session:${sessionKey(id)}`, text);
    expect([await stored(store, one), await stored(store, other)]).toEqual([null, null]);
    expect(await store.state(sessionKey(one))).toBe('missing');
    expect(lines.map((line) => JSON.parse(line))).toEqual([
      { level: 'warn', time: expect.any(String), msg: expect.stringMatching(/not of the version/) },
    ]);
    expect(await done((callback) => store.destroy(one, callback))).toBeUndefined();
    expect(await stored(store, one)).toBeNull();
  });

  test('that were removed are no riddle to the log', async () => {
    const id = newId();
    await set(id);
    await done((callback) => store.destroy(id, callback));
    expect(await stored(store, id)).toBeNull();
    expect(lines).toEqual([]);
  });

  test('are not removed where nobody can be told', async () => {
    const id = newId();
    await set(id);
    await server.command('ACL', 'SETUSER', 'mute', 'on', 'nopass', '~*', '+@all', 'resetchannels');
    const mute = openRedis({ url: secret(server.url.replace('://', '://mute:any@')), logger });
    while (!(await mute.answers())) await sleep(5);
    const error = await done((callback) => redisSessionStore({ redis: mute, logger }).destroy(id, callback));
    mute.close();
    expect(error).toMatchObject({ code: 'session_store_unavailable' });
    expect(await stored(store, id)).not.toBeNull();
  });

  test('fail with the problem of the store when Redis is away', async () => {
    const { key, id } = { id: newId(), key: sessionKey('a') };
    const lost = openRedis({ url: secret('redis://127.0.0.1:9'), logger });
    const without = redisSessionStore({ redis: lost, logger });
    const PROBLEM = { code: 'session_store_unavailable' };
    const got = new Promise((resolve) => without.get(id, resolve));
    expect(await got).toMatchObject(PROBLEM);
    expect(await done((callback) => without.set(id, session(), callback))).toMatchObject(PROBLEM);
    expect(await done((callback) => without.touch(id, session(), callback))).toMatchObject(PROBLEM);
    expect(await done((callback) => without.destroy(id, callback))).toMatchObject(PROBLEM);
    await expect(without.extend(key, Date.now())).rejects.toMatchObject(PROBLEM);
    await expect(without.state(key)).rejects.toMatchObject(PROBLEM);
    await expect(without.removeUser('ada')).rejects.toMatchObject(PROBLEM);
    await expect(without.remove(key)).rejects.toMatchObject(PROBLEM);
    await expect(without.removeProviderSession('one')).rejects.toMatchObject(PROBLEM);
    lost.close();
  });
});
