import { afterAll, afterEach, beforeAll, beforeEach, describe, expect, jest, test } from '@jest/globals';
import fc from 'fast-check';
import { memorySessionStore } from '../../src/authenticate/sessions/memory-session-store.ts';
import { redisSessionStore } from '../../src/authenticate/sessions/redis-session-store.ts';
import { scopedSealer, sealer } from '../../src/authenticate/sessions/seal.ts';
import {
  extendedIdleLimit,
  type LiveSession,
  type Session,
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

let keys = 0;
const newKey = () => sessionKey(`id-${++keys}`.padEnd(32, 'x'));
const session = (userId: string, limits = LIMITS): Session =>
  startSession({ id: userId, name: userId }, limits, Date.now());

/** A session, and what its store must know of it. */
interface Known {
  readonly key: string;
  readonly session: Session;
  state: number | 'removed';
}

// The unit 'binary' of fast-check needs a second at its first use.
const anyCharacter = fc.constantFrom(...'a1 "\\/{}%\0\n\x7fé€\u2028\uffff😀');
const user = fc.constantFrom('ada', 'one');
const providerSession = fc.constantFrom('one', 'half a pair: \ud83d', 'nul \0 line \u2028 "\\/{}%d 🤖');
const provider = fc.option(providerSession, { nil: undefined });
const at = fc.nat(9);
const stepsArbitrary = fc.array(
  fc.oneof(
    {
      weight: 4,
      arbitrary: fc.tuple(fc.constant('begin' as const), user, provider, fc.string({ unit: anyCharacter })),
    },
    fc.tuple(fc.constant('begin late' as const), user, providerSession, fc.boolean()),
    fc.tuple(fc.constant('extend' as const), at, fc.integer({ min: -MINUTE, max: MINUTE })),
    fc.tuple(fc.constant('remove' as const), at),
    fc.tuple(fc.constant('remove user' as const), user),
    fc.tuple(fc.constant('remove provider session' as const), providerSession),
  ),
  { minLength: 4, maxLength: 25 },
);
type Step = ReturnType<typeof stepsArbitrary.generate>['value'][number];

/** A store may keep half a surrogate pair, or the sign that replaces it. */
const wellFormed = (one: object | undefined) =>
  one && { ...one, providerSession: (one as Session).providerSession?.toWellFormed() };

let runs = 0;
/** Takes the steps with users of their own, and expects the results of a simple model; returns what it knows at the end. */
async function expectAsModel(store: SessionStore, steps: readonly Step[]): Promise<readonly Known[]> {
  const run = ` of run ${++runs}`;
  const known: Known[] = [];
  const live = ({ key, session }: Known) => ({ ...session, key });
  const end = (isMeant: (session: Session) => boolean) => {
    const ending = known.filter((one) => one.state !== 'removed' && isMeant(one.session));
    for (const one of ending) one.state = 'removed';
    return ending.length;
  };
  const removals = {
    async user(userId: string) {
      expect(await store.removeUser(userId)).toBe(end(({ user }) => user.id === userId));
    },
    async provider(name: string) {
      expect(await store.removeProviderSession(name)).toBe(end((one) => one.providerSession === name));
    },
  };
  async function begin(userId: string, providerSession?: string, name = userId) {
    const startedAt = await store.startTime({ userId, providerSession });
    const own = { ...session(userId), user: { id: userId, name }, startedAt };
    return { key: newKey(), session: providerSession === undefined ? own : { ...own, providerSession } };
  }
  for (const step of steps) {
    const one = typeof step[1] === 'number' ? known[step[1] % (known.length || 1)] : undefined;
    if (step[0] === 'begin') {
      const begun = await begin(step[1] + run, step[2] && step[2] + run, step[3]);
      expect(await store.set(begun.key, begun.session)).toBe(true);
      known.push({ ...begun, state: begun.session.idleExpiresAt });
    } else if (step[0] === 'begin late') {
      const begun = await begin(step[1] + run, step[2] + run);
      // After a removal in the same millisecond, its beginning is ahead of the clock.
      await until(async () => (await store.now()) >= begun.session.startedAt);
      await (step[3] ? removals.user(step[1] + run) : removals.provider(step[2] + run));
      expect(await store.set(begun.key, begun.session)).toBe(false);
      expect(await store.get(begun.key)).toBeUndefined();
    } else if (step[0] === 'extend' && one) {
      const wanted = Number(one.session.idleExpiresAt) + step[2];
      if (one.state !== 'removed') one.state = Math.max(one.state, wanted);
      expect(await store.extend(live(one), wanted)).toBe(one.state);
    } else if (step[0] === 'remove' && one) {
      await store.remove(one.key);
      one.state = 'removed';
    } else if (step[0] === 'remove user') await removals.user(step[1] + run);
    else if (step[0] === 'remove provider session') await removals.provider(step[1] + run);
    expect(await Promise.all(known.map((each) => store.state(live(each))))).toEqual(
      known.map(({ state }) => state),
    );
  }
  for (const { key, session, state } of known) {
    const isRemoved = state === 'removed';
    const expected = isRemoved ? undefined : { ...session, idleExpiresAt: state };
    expect(wellFormed(await store.get(key))).toEqual(wellFormed(expected));
    // No call restores it.
    if (isRemoved) expect([await store.set(key, session), await store.get(key)]).toEqual([false, undefined]);
  }
  return known;
}

/** The tests for every store of sessions. */
function storeContract(open: () => SessionStore, { inMemory = false } = {}): void {
  let store: SessionStore;
  beforeEach(() => {
    store = open();
  });
  afterEach(() => store.close());

  test('has each session until it is removed, by its key or with its user or provider’s session, and reports that once', async () => {
    const heard: string[] = [];
    await new Promise<void>((missed) => {
      // Redis may tell of one again.
      const isNew = (key: string) => inMemory || !heard.includes(key);
      store.listen({ removed: (keys) => heard.push(...keys.filter(isNew)), missed });
      if (inMemory) missed();
    });
    const property = fc.asyncProperty(stepsArbitrary, async (steps) => {
      heard.length = 0;
      const known = await expectAsModel(store, steps);
      const removed = known.filter(({ state }) => state === 'removed').map(({ key }) => key);
      await until(() => removed.every((key) => heard.includes(key)));
      const last = newKey();
      await store.set(last, session('last'));
      await store.remove(last);
      await until(() => heard.includes(last));
      expect(heard.filter((key) => known.some((one) => one.key === key)).sort()).toEqual(removed.sort());
    });
    await fc.assert(property, { numRuns: 40 });
  });

  test('knows nothing of a session that it never had', async () => {
    const live = { ...session('ada'), key: newKey() };
    await store.remove(newKey());
    expect(await store.get(live.key)).toBeUndefined();
    expect(await store.state(live)).toBe('missing');
    expect(await store.extend(live, Date.now() + MINUTE)).toBe('missing');
    expect(await store.get(live.key)).toBeUndefined();
  });

  test('keeps all fields, and shares no object with its callers', async () => {
    const [key, data] = [newKey(), { ...session('ada'), providerSession: 'one', idToken: 'two' }];
    const kept = structuredClone({ ...data, user: { id: 'ada', name: '"idleExpiresAt":1' } });
    Object.assign(data, structuredClone(kept));
    await store.set(key, data);
    Object.assign(data, { idleExpiresAt: 1 });
    Object.assign((await store.get(key)) as Session, { idleExpiresAt: 2 });
    expect(await store.get(key)).toEqual(kept);
  });

  test('never restores a session that has expired', async () => {
    const [key, data] = [newKey(), session('ada', { idleMs: 1, absoluteMs: MINUTE })];
    await store.set(key, data);
    // Redis counts from when it has heard of it.
    await until(async () => (await store.get(key)) === undefined);
    expect(await store.extend({ ...data, key }, data.idleExpiresAt + MINUTE)).toBe('missing');
    expect(await store.get(key)).toBeUndefined();
  });

  test('remembers for a while that all sessions of a user, or of a session of the provider, were removed', async () => {
    const before = Date.now();
    const was = (userId: string, providerSession?: string, since = before) =>
      store.removedSince({ userId, providerSession }, since);
    expect(await was('carol', 'three')).toBe(false);
    await store.removeUser('carol');
    await store.removeProviderSession('three');
    expect(await Promise.all([was('carol'), was('carol', 'four'), was('dave', 'three')])).not.toContain(
      false,
    );
    const others = [was('dave'), was('three', 'carol'), was('carol', 'three', Date.now() + 1)];
    expect(await Promise.all(others)).not.toContain(true);
  });
}

describe('the sessions in memory', () => {
  storeContract(() => memorySessionStore(), { inMemory: true });
});

describe('the memory of the sessions', () => {
  let now: number;
  let store: SessionStore;
  beforeEach(() => {
    jest.useFakeTimers({ doNotFake: ['queueMicrotask', 'nextTick'] });
    now = 1000;
    store = memorySessionStore(() => now);
  });
  afterEach(() => {
    store.close();
    jest.useRealTimers();
  });
  const until = (idleExpiresAt: number): Session => ({
    ...{ user: { id: 'ada', name: 'ada' }, startedAt: 0, idleExpiresAt, absoluteExpiresAt: 1_000_000 },
  });

  test('drops expired sessions, and only those, within a minute', async () => {
    await store.set('live', until(61_001));
    await store.set('dead', until(61_000));
    now = 61_000;
    expect(await store.get('dead')).toBeUndefined();
    jest.advanceTimersByTime(MINUTE);
    // If the clock goes back, a session that was not dropped is there again.
    now = 60_999;
    expect([await store.get('live'), await store.get('dead')]).toEqual([until(61_001), undefined]);
  });

  test('has a removed session until it would have expired, and the removal of all for a minute', async () => {
    await store.set('a', until(61_000));
    await store.remove('a');
    await store.removeUser('ada');
    const known = () =>
      Promise.all([
        store.state({ ...until(61_000), key: 'a' }),
        store.removedSince({ userId: 'ada', providerSession: undefined }, 1000),
      ]);
    now = 60_999;
    jest.advanceTimersByTime(MINUTE);
    expect(await known()).toEqual(['removed', true]);
    now = 61_000;
    jest.advanceTimersByTime(MINUTE);
    expect(await known()).toEqual(['missing', false]);
  });

  test('needs no timer once it is closed', () => {
    expect(jest.getTimerCount()).toBe(1);
    store.close();
    expect(jest.getTimerCount()).toBe(0);
  });
});

const UNAVAILABLE = { code: 'session_store_unavailable' };
const [FIRST, SECOND] = [secret('the first secret of this test'), secret('the second secret of this test')];
const codecOf = (...secrets: (typeof FIRST)[]) => sessionCodec(sealer(secrets, 'sessions'));

describeWithRedis('the sessions in Redis', () => {
  const USER_SET = 'bot-relay:user-sessions:ada';
  const PROVIDER_SET = 'bot-relay:provider-sessions:one';
  const lines: string[] = [];
  const logger = createLogger('info', { write: (line: string) => void lines.push(line) });
  const options = { logger, codec: codecOf(FIRST), absoluteMs: LIMITS.absoluteMs };
  const open = (more: Partial<Parameters<typeof redisSessionStore>[0]> = {}) =>
    redisSessionStore({ ...options, redis, ...more });

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
    store = open();
  });
  afterEach(() => void jest.restoreAllMocks());
  afterAll(async () => {
    redis.close();
    await server.stop();
  });
  storeContract(() => open());

  /** A session that begins now, before it is stored. */
  async function begun(userId = 'ada', providerSession = 'one', limits = LIMITS): Promise<LiveSession> {
    const startedAt = await store.startTime({ userId, providerSession });
    return { ...session(userId, limits), startedAt, providerSession, key: newKey() };
  }
  const set = ({ key, ...data }: LiveSession, to = store) => to.set(key, data);
  async function stored(...of: Parameters<typeof begun>): Promise<LiveSession> {
    const one = await begun(...of);
    await set(one);
    return one;
  }
  const later = ({ idleExpiresAt }: LiveSession) => idleExpiresAt + MINUTE;
  const nameOf = ({ key }: LiveSession) => `bot-relay:session:${key}`;
  const textOf = async (one: LiveSession) => (await server.command('GET', nameOf(one))) as string;
  const names = async () => ((await server.command('KEYS', '*')) as string[]).sort();
  const listed = async (name: string) =>
    ((await server.command('ZRANGE', name, '0', '-1')) as string[]).sort();
  const scoreOf = async (member: string) => Number(await server.command('ZSCORE', USER_SET, member));
  const addLongGone = (name: string) =>
    server.command('ZADD', name, String(Date.now() - 2 * MINUTE), 'long-gone');
  /** Expects that the keys expire in more than `from` and at most `to` minutes. */
  async function expectTtl(from: number, to: number, ...keys: string[]): Promise<void> {
    for (const key of keys) {
      const ms = Number(await server.command('PTTL', key));
      expect([key, ms > from * MINUTE, ms <= to * MINUTE]).toEqual([key, true, true]);
    }
  }
  /** Resolves once `one` hears of removals; each is added to the returned list. */
  async function listen(one: SessionStore): Promise<string[]> {
    const heard: string[] = [];
    await new Promise<void>((missed) => one.listen({ removed: (keys) => heard.push(...keys), missed }));
    return heard;
  }

  describe('as text', () => {
    test('are encrypted, except for the idle limit and the names of their sets', async () => {
      const one = await begun();
      await set({ ...one, user: { id: 'ada', name: 'Ada L.' }, idToken: 'two' });
      expect(await names()).toEqual([PROVIDER_SET, nameOf(one), USER_SET]);
      expect(JSON.parse(await textOf(one))).toEqual({
        v: 1,
        idleExpiresAt: one.idleExpiresAt,
        sets: [USER_SET, PROVIDER_SET],
        sealed: expect.stringMatching(/^[\w-]{100,400}$/),
      });
    });

    test('cannot be read with another key, if their encrypted part is changed, or without its secret', async () => {
      const [one, other] = [await stored(), await begun()];
      const text = await textOf(one);
      await server.command('SET', nameOf(other), text);
      expect(await store.get(other.key)).toBeUndefined();
      const sealed = JSON.parse(text).sealed as string;
      const changed = sealed.slice(0, 20) + (sealed[20] === 'A' ? 'Q' : 'A') + sealed.slice(21);
      await server.command('SET', nameOf(one), text.replace(sealed, changed));
      expect(await store.get(one.key)).toBeUndefined();
      await set(one, open({ codec: codecOf(SECOND) }));
      expect(await open({ codec: codecOf(FIRST, SECOND) }).get(one.key)).toBeDefined();
      expect(await store.get(one.key)).toBeUndefined();
    });

    test('count as missing if they cannot be read, which is logged once and without the text', async () => {
      for (const text of [
        '{"v":3,"idleExpiresAt":9000000000000,"canary":"canary-in-redis"}',
        '{"v":1,"idleExpiresAt":9000000000000,"user":{"id":"ada","name":"ada"}}',
        'canary-in-redis',
        'null',
      ]) {
        const one = await begun();
        await server.command('SET', nameOf(one), text);
        expect([await store.get(one.key), await store.state(one)]).toEqual([undefined, 'missing']);
        await store.remove(one.key);
        expect(await store.get(one.key)).toBeUndefined();
      }
      expect(lines.map((line) => JSON.parse(line))).toEqual([
        {
          level: 'warn',
          time: expect.any(String),
          msg: expect.stringMatching(/cannot read a stored session/),
        },
      ]);
    });

    test('expire with the session, together with its sets, and stay as a mark when it was removed', async () => {
      const one = await stored();
      await expectTtl(29, 30, nameOf(one));
      await store.extend(one, Date.now() + 40 * MINUTE);
      await expectTtl(39, 40, nameOf(one));
      // Somewhat longer than the last session, since the clocks of the instances differ.
      await expectTtl(40, 42, USER_SET, PROVIDER_SET);
      await store.remove(one.key);
      await expectTtl(39, 40, nameOf(one));
      expect([await names(), await store.get(one.key), lines]).toEqual([[nameOf(one)], undefined, []]);
    });

    test('are not stored if they have expired', async () => {
      expect(await set(await begun('ada', 'one', { idleMs: 0, absoluteMs: MINUTE }))).toBe(false);
      expect(await names()).toEqual([]);
    });
  });

  describe('in the sets of a user and of a session of the provider', () => {
    test('are taken out when they are removed or have expired', async () => {
      for (const name of [USER_SET, PROVIDER_SET]) await addLongGone(name);
      const [first, second] = [await stored(), await stored()];
      const both = [first.key, second.key].sort();
      expect([await listed(USER_SET), await listed(PROVIDER_SET)]).toEqual([both, both]);
      await store.remove(second.key);
      expect([await listed(USER_SET), await listed(PROVIDER_SET)]).toEqual([[first.key], [first.key]]);
      await store.removeProviderSession('one');
      expect([await listed(USER_SET), await listed(PROVIDER_SET)]).toEqual([[], [ENDED]]);
    });
  });

  test('are not removed if the removal cannot be published', async () => {
    const one = await stored();
    await server.command('ACL', 'SETUSER', 'mute', 'on', 'nopass', '~*', '+@all', 'resetchannels');
    const muted = await connected(server.url.replace('://', '://mute:any@'));
    const mute = open({ redis: muted });
    await expect(mute.remove(one.key)).rejects.toMatchObject(UNAVAILABLE);
    await expect(mute.removeUser('ada')).rejects.toMatchObject(UNAVAILABLE);
    muted.close();
    expect(await store.hasEnded(one)).toBe(false);
    expect(await store.extend(one, later(one))).toBe(later(one));
    expect(await store.get(one.key)).toBeDefined();
  });

  test('are unavailable while Redis is out of reach: every call rejects', async () => {
    const one = await begun();
    const lost = openRedis({ url: secret('redis://127.0.0.1:9'), logger });
    const without = open({ redis: lost });
    for (const asked of [
      ...[without.get(one.key), set(one, without), without.extend(one, Date.now())],
      ...[without.state(one), without.removeUser('ada'), without.remove(one.key)],
      without.removeProviderSession('one'),
    ])
      await expect(asked).rejects.toMatchObject(UNAVAILABLE);
    lost.close();
  });

  test('are forgotten decrypted by the instance that removes them, and by others that hear of it', async () => {
    const forgotten: string[][] = [[], []];
    const [one, other] = forgotten.map((keys) =>
      open({ codec: { ...options.codec, forget: (key: string) => void keys.push(key) } }),
    ) as [SessionStore, SessionStore];
    await listen(other);
    const [first, second] = [await stored(), await stored()];
    await one.remove(first.key);
    expect(forgotten[0]).toEqual([first.key]);
    await until(() => forgotten[1]?.includes(first.key) === true);
    await one.removeUser('ada');
    await until(() => forgotten[1]?.includes(second.key) === true);
  });

  describe('at an instance with another clock', () => {
    /** What `work` does at an instance whose clock is `minutes` ahead. */
    async function ahead<T>(minutes: number, work: () => Promise<T>): Promise<T> {
      const { now } = Date;
      const clock = jest.spyOn(Date, 'now').mockImplementation(() => now() + minutes * MINUTE);
      try {
        return await work();
      } finally {
        clock.mockRestore();
      }
    }
    const SHORT = { ...LIMITS, idleMs: 3 * MINUTE };
    const storedShort = () => stored('ada', 'one', SHORT);
    const extend = (one: LiveSession) => store.extend(one, extendedIdleLimit(one, SHORT, Date.now()));

    test.each([-60, -5, -1.5, 2])('that is %d minutes ahead, stay in their set', async (minutes) => {
      const one = await storedShort();
      const before = await scoreOf(one.key);
      expect(typeof (await ahead(minutes, () => extend(one)))).toBe('number');
      expect(await scoreOf(one.key)).toBeGreaterThanOrEqual(before);
      const wanted = one.idleExpiresAt - 2 * MINUTE;
      expect(await store.extend(one, wanted)).toBeGreaterThanOrEqual(one.idleExpiresAt);
      expect(await scoreOf(one.key)).toBeGreaterThanOrEqual(before);
      expect(await ahead(minutes, () => store.removeUser('ada'))).toBe(1);
      expect(await store.get(one.key)).toBeUndefined();
    });

    test.each([-60, 60])('that is %d minutes ahead, begin and live at others', async (minutes) => {
      const one = await ahead(minutes, () => stored());
      expect(await store.get(one.key)).toBeDefined();
      expect(typeof (await store.state(one))).toBe('number');
      expect(typeof (await extend(one))).toBe('number');
      const here = await stored();
      expect(await ahead(minutes, () => store.get(here.key))).toBeDefined();
    });

    test('that is slow, are in the set as long as their text lives, which is longer', async () => {
      const one = await ahead(-5, storedShort);
      await addLongGone(USER_SET);
      await server.command('PEXPIRE', nameOf(one), String(MINUTE));
      await ahead(-4, () => extend(one));
      await expectTtl(2, 4, nameOf(one));
      const left = Number(await server.command('PTTL', nameOf(one)));
      expect((await scoreOf(one.key)) - Date.now()).toBeGreaterThanOrEqual(left - 1_000);
      expect(await listed(USER_SET)).toEqual([one.key]);
    });

    test('that is fast, are removed before a sign-in that begins later', async () => {
      await ahead(2, () => store.removeUser('ada'));
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
    return open({ redis: { ...redis, script } });
  }

  describe.each<[string, (from: SessionStore) => Promise<number>, string]>([
    ['a user', (from) => from.removeUser('ada'), USER_SET],
    ['a session of the provider', (from) => from.removeProviderSession('one'), PROVIDER_SET],
  ])('if an instance is lost while it removes those of %s', (_of, remove, name) => {
    test('have all ended that began before, and the next removal finishes it', async () => {
      const heard = await listen(store);
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
      expect(await set(underWay)).toBe(false);
      expect(await store.hasEnded(underWay)).toBe(true);
      await expectTtl(480, 481, name);
      const owner = { userId: 'ada', providerSession: 'one' };
      expect(await store.removedSince(owner, first.startedAt)).toBe(true);
      expect(await remove(store)).toBe(1);
      expect(await store.get(first.key)).toBeUndefined();
    });

    test('live if they begin later, or are of others', async () => {
      const [before, others] = [await stored(), await stored('bob', 'two')];
      void remove(dyingStore());
      await until(() => store.hasEnded(before));
      for (const one of [await stored(), others]) {
        expect(await store.hasEnded(one)).toBe(false);
        expect(await store.extend(one, later(one))).toBe(later(one));
        expect(await store.state(one)).toBe(later(one));
      }
      expect(await store.hasEnded(before)).toBe(true);
    });
  });

  test('that begin after the clock of Redis went back live, and the next removal of all ends them', async () => {
    const before = await stored();
    await store.removeUser('ada');
    // As if a master whose clock was ahead had written the mark.
    const mark = Date.now() + MINUTE / 2 + MARK_MS;
    await server.command('ZADD', USER_SET, String(mark), ENDED);
    const next = await stored();
    expect(await store.state(next)).toBe(next.idleExpiresAt);
    expect(await store.extend(next, later(next))).toBe(later(next));
    expect(await store.hasEnded(before)).toBe(true);
    void dyingStore().removeUser('ada');
    await until(async () => (await scoreOf(ENDED)) !== mark);
    expect(await store.hasEnded(next)).toBe(true);
    expect(await scoreOf(ENDED)).toBe(mark + 1);
    expect(await store.hasEnded(await stored())).toBe(false);
  });
});

describe('a sealed text', () => {
  const TEXT = '{"user":{"id":"ada","name":"ünï 🤖"}}';
  const one = sealer([FIRST], 'sessions');
  const bytesOf = (sealed: string) => Buffer.from(sealed, 'base64url');
  const texts = fc.string({ unit: anyCharacter, maxLength: 200 });

  test('is opened as it was, with its own name alone, and is 28 bytes longer, for nonce and tag', () => {
    fc.assert(
      fc.property(texts, texts, texts, (text, name, other) => {
        const sealed = one.seal(text, name);
        expect(sealed).toMatch(/^[\w-]+$/);
        expect(bytesOf(sealed)).toHaveLength(Buffer.byteLength(text) + 28);
        expect(one.open(sealed, name)).toBe(text);
        expect(one.open(sealed, other)).toBe(other === name ? text : undefined);
      }),
    );
  });

  test('does not show the text, and never uses a nonce twice', () => {
    const sealed = Array.from({ length: 1000 }, () => one.seal(TEXT, 'key'));
    expect(new Set(sealed.map((text) => text.slice(0, 16))).size).toBe(1000);
    expect(sealed.filter((text) => bytesOf(text).toString('latin1').includes('ada'))).toEqual([]);
  });

  test('does not open if any bit is changed, or if it is shorter or longer, or no such text at all', () => {
    const bytes = bytesOf(one.seal(TEXT, 'key'));
    const open = (changed: Buffer) => one.open(changed.toString('base64url'), 'key');
    expect(open(bytes)).toBe(TEXT);
    for (let at = 0; at < bytes.length; at += 1) {
      expect([at, open(bytes.subarray(0, at))]).toEqual([at, undefined]);
      for (const bit of [1, 128]) {
        const changed = Buffer.from(bytes);
        changed.writeUInt8((bytes[at] as number) ^ bit, at);
        expect([at, open(changed)]).toEqual([at, undefined]);
      }
    }
    expect(open(Buffer.concat([bytes, Buffer.from([0])]))).toBeUndefined();
    for (const text of ['', '🤖', 'A'.repeat(1000)]) expect(one.open(text, 'key')).toBeUndefined();
  });

  test('opens with all secrets, the first one seals, and each purpose has keys of its own', () => {
    const [both, other] = [sealer([SECOND, FIRST], 'sessions'), sealer([SECOND], 'sessions')];
    expect(both.open(one.seal(TEXT, 'key'), 'key')).toBe(TEXT);
    expect(other.open(both.seal(TEXT, 'key'), 'key')).toBe(TEXT);
    expect(one.open(both.seal(TEXT, 'key'), 'key')).toBeUndefined();
    expect(sealer([FIRST], 'something else').open(one.seal(TEXT, 'key'), 'key')).toBeUndefined();
  });

  test('of a scope has keys of its own, which are derived again after 4096 others, or when forgotten', () => {
    const [both, old] = [scopedSealer([SECOND, FIRST], 'runs'), scopedSealer([FIRST], 'runs')];
    const sealed = old('a').seal(TEXT, 'key');
    expect(both('a').open(sealed, 'key')).toBe(TEXT);
    expect(old('b').open(sealed, 'key')).toBeUndefined();
    expect(scopedSealer([FIRST], 'something else')('a').open(sealed, 'key')).toBeUndefined();
    expect(old('a').open(both('a').seal(TEXT, 'key'), 'key')).toBeUndefined();
    const first = old('first');
    expect(old('first')).toBe(first);
    for (let n = 0; n < 4096; n += 1) old(String(n));
    const again = old('first');
    expect(again).not.toBe(first);
    old.forget('first');
    expect(old('first')).not.toBe(again);
    expect(old('first').open(first.seal(TEXT, 'key'), 'key')).toBe(TEXT);
  });
});

describe('the codec of sessions', () => {
  const of = (id: string) => ({
    ...session(id),
    startedAt: 1,
    idleExpiresAt: 2_000,
    absoluteExpiresAt: 3_000,
  });
  /** A codec, and how many texts it has decrypted. */
  function counted() {
    const plain = sealer([FIRST], 'sessions');
    const open = jest.fn(plain.open);
    return { codec: sessionCodec({ ...plain, open }), decrypted: () => open.mock.calls.length };
  }

  test('decrypts a session once, however often it is read and extended, until it is forgotten', () => {
    const { codec, decrypted } = counted();
    const text = codec.encode('key', of('ada'));
    expect(codec.decode('key', text)).toEqual(of('ada'));
    const extended = text.replace('2000', '2500');
    expect(codec.decode('key', extended)).toEqual({ ...of('ada'), idleExpiresAt: 2_500 });
    expect(decrypted()).toBe(1);
    codec.forget('key');
    expect(codec.decode('key', text)).toEqual(of('ada'));
    expect(decrypted()).toBe(2);
  });

  test('takes no remembered session for a text of another key, or for another text of its key', () => {
    const { codec } = counted();
    const text = codec.encode('key', of('ada'));
    expect(codec.decode('key', text)).toEqual(of('ada'));
    expect(codec.decode('other key', text)).toBeUndefined();
    expect(codec.decode('key', codec.encode('key', of('bob')))).toEqual(of('bob'));
    expect(codec.decode('key', text.replace(/.{8}"}$/, 'AAAAAAAA"}'))).toBeUndefined();
  });

  test('remembers the thousand sessions that were read last, and no more', () => {
    const { codec, decrypted } = counted();
    const encoded = Array.from({ length: 1001 }, (_, n) => codec.encode(`key ${n}`, of(`user ${n}`)));
    const read = (...numbers: number[]) => {
      const before = decrypted();
      for (const n of numbers) codec.decode(`key ${n}`, encoded[n] as string);
      return decrypted() - before;
    };
    const first = Array.from({ length: 1000 }, (_, n) => n);
    expect([read(...first), read(...first)]).toEqual([1000, 0]);
    // So 1 was not read for the longest time.
    expect([read(0, 1000), read(0, 2, 999, 1000), read(1), read(2, 3)]).toEqual([1, 0, 1, 1]);
  });
});
