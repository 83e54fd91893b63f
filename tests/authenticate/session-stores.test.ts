import { afterAll, afterEach, beforeAll, beforeEach, describe, expect, jest, test } from '@jest/globals';
import fc from 'fast-check';
import { memorySessionStore } from '../../src/authenticate/sessions/memory-session-store.ts';
import { redisSessionStore } from '../../src/authenticate/sessions/redis-session-store.ts';
import { sealer } from '../../src/authenticate/sessions/seal.ts';
import { type Session, sessionKey, startSession } from '../../src/authenticate/sessions/session.ts';
import { sessionCodec } from '../../src/authenticate/sessions/session-codec.ts';
import type { SessionStore } from '../../src/authenticate/sessions/session-store.ts';
import { createLogger } from '../../src/logger.ts';
import { secret } from '../../src/secret.ts';
import type { Redis } from '../../src/storage/redis.ts';
import { until } from '../harness/clock/until.ts';
import { connected, describeWithRedis, startRedis, stopRedis } from '../harness/redis/redis.ts';

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

const user = fc.constantFrom('ada', 'one');
const providerSession = fc.constantFrom('one', 'half a pair: \ud83d', 'nul \0 line \u2028 "\\/{}%d 🤖');
const provider = fc.option(providerSession, { nil: undefined });
const at = fc.nat(9);
const stepsArbitrary = fc.array(
  fc.oneof(
    {
      weight: 4,
      arbitrary: fc.tuple(fc.constant('begin' as const), user, provider, fc.string({ unit: 'binary' })),
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

describeWithRedis('the sessions in Redis', () => {
  let redis: Redis;
  beforeAll(async () => {
    redis = await connected((await startRedis()).url);
  });
  afterAll(() => {
    redis.close();
    stopRedis();
  });
  const codec = sessionCodec(sealer([secret('the secret of the sessions’ test')], 'sessions'));
  const options = { codec, logger: createLogger('silent'), absoluteMs: LIMITS.absoluteMs };
  storeContract(() => redisSessionStore({ ...options, redis }));
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
