import { afterAll, afterEach, beforeAll, beforeEach, expect, jest, test } from '@jest/globals';
import { redisSessionStore } from '../../src/authenticate/sessions/redis-session-store.ts';
import { sealer } from '../../src/authenticate/sessions/seal.ts';
import {
  extendedIdleLimit,
  type LiveSession,
  sessionKey,
  startSession,
} from '../../src/authenticate/sessions/session.ts';
import { sessionCodec } from '../../src/authenticate/sessions/session-codec.ts';
import { ENDED, MARK_MS } from '../../src/authenticate/sessions/session-script.ts';
import type { SessionStore } from '../../src/authenticate/sessions/session-store.ts';
import { createLogger } from '../../src/logger.ts';
import { secret } from '../../src/secret.ts';
import type { Redis } from '../../src/storage/redis.ts';
import { until } from '../harness/clock/until.ts';
import { connected, describeWithRedis, type RedisServer, startRedis } from '../harness/redis/redis.ts';
import { type Instances, startInstances } from '../harness/relay/instances.ts';
import type { TestRelay } from '../harness/relay/relay.ts';

const MINUTE = 60_000;
const LIMITS = { idleMs: 3 * MINUTE, absoluteMs: 480 * MINUTE };
const SET = 'bot-relay:user-sessions:ada';
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
afterEach(() => void jest.restoreAllMocks());
afterAll(async () => {
  redis.close();
  await server.stop();
});

let ids = 0;
async function stored(): Promise<LiveSession> {
  const startedAt = await store.startTime({ userId: 'ada', providerSession: undefined });
  const data = { ...startSession({ id: 'ada', name: 'ada' }, LIMITS, Date.now()), startedAt };
  const key = sessionKey(`id-${++ids}`);
  expect(await store.set(key, data)).toBe(true);
  return { ...data, key };
}

const extend = (session: LiveSession) =>
  store.extend(session, extendedIdleLimit(session, LIMITS, Date.now()));
const scoreOf = async (member: string) => Number(await server.command('ZSCORE', SET, member));

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

describeWithRedis('a session that is used at an instance whose clock is', () => {
  test.each([
    ['5 minutes slow', -5 * MINUTE],
    ['90 seconds slow', -1.5 * MINUTE],
    ['2 minutes fast', 2 * MINUTE],
  ])('%s stays in the set of its user, and is removed with it', async (_what, ms) => {
    const session = await stored();
    const before = await scoreOf(session.key);
    expect(typeof (await withClock(ms, () => extend(session)))).toBe('number');
    expect(await scoreOf(session.key)).toBeGreaterThanOrEqual(before);
    expect(await withClock(ms, () => store.removeUser('ada'))).toBe(1);
    expect(await store.get(session.key)).toBeUndefined();
  });

  test('5 minutes slow is in the set as long as its text lives', async () => {
    const session = await withClock(-5 * MINUTE, stored);
    await server.command('ZADD', SET, String(Date.now() - 2 * MINUTE), 'long-gone');
    await withClock(-4 * MINUTE, () => extend(session));
    const left = Number(await server.command('PTTL', `bot-relay:session:${session.key}`));
    expect((await scoreOf(session.key)) - Date.now()).toBeGreaterThanOrEqual(left - 1_000);
    expect(await server.command('ZRANGE', SET, '0', '-1')).toEqual([session.key]);
  });
});

const HOUR = 60 * MINUTE;

describeWithRedis('an instance whose clock is an hour', () => {
  let all: Instances;
  beforeAll(async () => {
    all = await startInstances({ count: 2, shared: true });
  });
  afterAll(() => all.close());
  const signIn = (at: number) => (all.relays[at] as TestRelay).signIn();
  const use = async (at: number, cookie: string) => {
    const { client } = await all.stream(at, cookie);
    client.socket.destroy();
    return (await all.get(at, '/auth/session', cookie)).status;
  };

  test.each([
    ['slow', -HOUR],
    ['fast', HOUR],
  ])('%s begins sessions that live at others, and uses those of others', async (_what, ms) => {
    const there = await withClock(ms, () => signIn(0));
    expect(await use(1, there)).toBe(200);
    expect(await withClock(ms, () => use(0, there))).toBe(200);
    const here = await signIn(1);
    expect(await withClock(ms, () => use(0, here))).toBe(200);
    expect(await use(1, here)).toBe(200);
  });

  test('slow makes a session that is used there live longer', async () => {
    const session = await stored();
    const name = `bot-relay:session:${session.key}`;
    await server.command('PEXPIRE', name, String(MINUTE));
    expect(typeof (await withClock(-HOUR, () => extend(session)))).toBe('number');
    expect(Number(await server.command('PTTL', name))).toBeGreaterThan(2 * MINUTE);
  });
});

describeWithRedis('a session that is used with an earlier limit', () => {
  test('stays in its set until the later one', async () => {
    const session = await stored();
    const before = await scoreOf(session.key);
    expect(await store.extend(session, session.idleExpiresAt - 2 * MINUTE)).toBe(session.idleExpiresAt);
    expect(await scoreOf(session.key)).toBeGreaterThanOrEqual(before);
  });
});

describeWithRedis('when all sessions of a user are removed', () => {
  test('by an instance with a fast clock, a sign-in that begins later knows nothing of it', async () => {
    await withClock(2 * MINUTE, () => store.removeUser('ada'));
    const since = (await store.now()) + 1;
    expect(await store.removedSince({ userId: 'ada', providerSession: undefined }, since)).toBe(false);
  });

  test('and the clock of Redis goes back, later sessions live, and the next removal ends them', async () => {
    const before = await stored();
    await store.removeUser('ada');
    // As if a master whose clock was ahead had written the mark.
    const ahead = Date.now() + MINUTE / 2 + MARK_MS;
    await server.command('ZADD', SET, String(ahead), ENDED);
    const next = await stored();
    expect(await store.state(next)).toBe(next.idleExpiresAt);
    expect(typeof (await extend(next))).toBe('number');
    expect(await store.hasEnded(before)).toBe(true);
    // All of its sessions have ended at once, even if an instance is lost before it removes them.
    const { script } = redis;
    const lost = redisSessionStore({
      ...options,
      redis: {
        ...redis,
        script: (lua) => (keys, args) =>
          args[0] === 'remove' ? new Promise(() => {}) : script(lua)(keys, args),
      },
    });
    void lost.removeUser('ada');
    await until(async () => (await scoreOf(ENDED)) !== ahead);
    expect(await store.hasEnded(next)).toBe(true);
    expect(await scoreOf(ENDED)).toBe(ahead + 1);
    const last = await stored();
    expect(await store.hasEnded(last)).toBe(false);
  });
});
