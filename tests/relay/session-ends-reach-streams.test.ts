import { afterEach, beforeEach, describe, expect, jest, test } from '@jest/globals';
import { sessionKey } from '../../src/authenticate/sessions/session.ts';
import { SESSION_PREFIX } from '../../src/authenticate/sessions/session-script.ts';
import { expectProblem, isSignedIn } from '../harness/clients/call.ts';
import { rawClient, rawMessage } from '../harness/clients/raw-client.ts';
import { until } from '../harness/clock/until.ts';
import type { FaultProxy } from '../harness/faults/fault-proxy.ts';
import { describeWithRedis, type RedisServer } from '../harness/redis/redis.ts';
import { type InstancesOptions, type OpenStream, startInstances } from '../harness/relay/instances.ts';
import { OTHER_USER, type TestRelay } from '../harness/relay/relay.ts';
import { change, idOf, stored } from '../harness/relay/sessions.ts';
import { LAST_CHUNK } from '../harness/service/raw-upstream.ts';

/** A limit of a session, in ms: longer than a test takes. */
const LIMIT_MS = 600_000;
const ENDED = { code: 'session_ended', complete: true };

/** By how much the date is advanced, in ms. */
let advancedMs = 0;
beforeEach(() => {
  const now = Date.now.bind(Date);
  advancedMs = 0;
  jest.spyOn(Date, 'now').mockImplementation(() => now() + advancedMs);
});

const closings: (() => Promise<void>)[] = [];
afterEach(async () => {
  jest.restoreAllMocks();
  for (const close of closings.splice(0)) await close();
});

async function startAll(options: InstancesOptions) {
  const all = await startInstances(options);
  closings.push(all.close);
  return {
    ...all,
    open: all.stream,
    relayAt: (at: number) => all.relays[at] as TestRelay,
    isLive: async (at: number, cookie: string) => isSignedIn(await all.get(at, '/auth/session', cookie)),
  };
}

/** What the session watch of an instance has been answered from now on, when it asked for a session. */
function askedFor({ parts: { sessions } }: TestRelay): () => Promise<unknown>[] {
  const calls = [jest.spyOn(sessions, 'state'), jest.spyOn(sessions, 'extend')];
  return () => calls.flatMap(({ mock }) => mock.results.map(({ value }) => value as Promise<unknown>));
}

/** Lets the session of a cookie expire: Redis goes by a clock of its own. */
async function expireIn(redis: RedisServer | undefined, cookie: string): Promise<void> {
  await redis?.command('DEL', SESSION_PREFIX + sessionKey(idOf(cookie)));
}

async function expectOver(streams: readonly OpenStream[]) {
  for (const over of await Promise.all(streams.map((stream) => stream.over())))
    expect(over).toMatchObject(ENDED);
}

async function expectContinues(stream: OpenStream) {
  stream.event('data: continues\n\n');
  await stream.client.waitFor('data: continues\n\n');
  stream.upstream.write(LAST_CHUNK);
  expect(await stream.over()).toMatchObject({ code: undefined, complete: true });
}

/** Tests for `count` instances; with more than one, LAST is another instance than the first. */
function sessionEnds(shared: boolean, count: number): void {
  const start = (limits = {}) => startAll({ count, shared, limits });
  const LAST = count - 1;

  test('a logout ends the streams of its session at all instances, and of no other session', async () => {
    const { relayAt, open, post } = await start();
    const [cookie, other] = [await relayAt(0).signIn(), await relayAt(0).signIn()];
    const mine = [await open(0, cookie), await open(LAST, cookie)];
    const others = await open(LAST, other);
    expect((await post(0, '/auth/logout', cookie)).status).toBe(204);
    await expectOver(mine);
    await until(() => mine.every(({ upstream }) => upstream.destroyed));
    await expectContinues(others);
  });

  test('logout-all ends all sessions and streams of the user, and of no other user', async () => {
    const { relayAt, isLive, open, post } = await start();
    const mine = await Promise.all([0, 0, LAST].map((at) => relayAt(at).signIn()));
    const bobs = await relayAt(0).signIn(OTHER_USER);
    const streams = await Promise.all(mine.map((cookie, n) => open(n === 0 ? 0 : LAST, cookie)));
    const bobsStream = await open(LAST, bobs);
    const answer = await post(0, '/auth/logout-all', mine[0] as string);
    expect([answer.status, answer.body]).toEqual([204, '']);
    expect(answer.headers['set-cookie']?.[0]).toMatch(/^bot_relay_session=;.*Expires=Thu, 01 Jan 1970/);
    await expectOver(streams);
    for (const cookie of mine)
      expect([await isLive(0, cookie), await isLive(LAST, cookie)]).toEqual([false, false]);
    expect(await isLive(LAST, bobs)).toBe(true);
    await expectContinues(bobsStream);
    // A later session of the user is not affected.
    const next = await relayAt(LAST).signIn();
    await expectContinues(await open(0, next));
  });

  test('a stream that carries data keeps its session alive, and with it the silent streams', async () => {
    const { relayAt, isLive, open, redis } = await start({ idleMs: LIMIT_MS });
    const cookie = await relayAt(0).signIn();
    const expiresAt = async () => (await stored(relayAt(0).parts.sessions, idOf(cookie)))?.idleExpiresAt ?? 0;
    const delivering = await open(0, cookie);
    const silent = await open(LAST, cookie);
    for (let times = 0; times < 4; times += 1) {
      // Read before the clock moves: what the stream has carried already may extend the session as soon as it does.
      const before = await expiresAt();
      advancedMs += 0.4 * LIMIT_MS;
      delivering.event();
      await until(async () => (await expiresAt()) > before);
    }
    expect([await isLive(0, cookie), await isLive(LAST, cookie)]).toEqual([true, true]);
    expect(silent.client.socket.destroyed).toBe(false);
    delivering.upstream.write(LAST_CHUNK);
    expect(await delivering.over()).toMatchObject({ code: undefined, complete: true });
    // Nothing keeps the session alive any more.
    advancedMs += LIMIT_MS;
    await expireIn(redis, cookie);
    await expectOver([silent]);
    expect(await isLive(0, cookie)).toBe(false);
  });
}

describe('with one instance', () => {
  sessionEnds(false, 1);
});

describeWithRedis('with two instances and Redis', () => {
  sessionEnds(true, 2);

  test('a sign-in with the cookie of a session ends the streams of that session', async () => {
    const { relayAt, open } = await startAll({ count: 2, shared: true });
    const cookie = await relayAt(0).signIn();
    const stream = await open(1, cookie);
    const headers = { Cookie: cookie, 'Content-Type': 'application/json' };
    const body = JSON.stringify({ username: OTHER_USER.name, password: OTHER_USER.password });
    expect((await fetch(`${relayAt(0).url}/auth/login`, { method: 'POST', headers, body })).status).toBe(200);
    await expectOver([stream]);
  });

  test('the absolute limit ends the streams of a session, also those that carry data', async () => {
    const { relayAt, open } = await startAll({ count: 2, shared: true });
    const cookie = await relayAt(0).signIn();
    const absoluteExpiresAt = Date.now() + LIMIT_MS;
    await change(relayAt(0).parts.sessions, idOf(cookie), { absoluteExpiresAt });
    const streams = [await open(0, cookie), await open(1, cookie)];
    const delivering = setInterval(() => streams[0]?.event(), 100);
    advancedMs = LIMIT_MS;
    await expectOver(streams);
    clearInterval(delivering);
  });

  test('a message whose session check began before a logout and ends after it is refused', async () => {
    const { relayAt, post, upstream } = await startAll({ count: 2, shared: true });
    const cookie = await relayAt(0).signIn();
    const { sessions } = relayAt(1).parts;
    const extend = sessions.extend.bind(sessions);
    const loggedOut = Promise.withResolvers<void>();
    const checked = Promise.withResolvers<void>();
    jest.spyOn(sessions, 'extend').mockImplementation(async (...args) => {
      checked.resolve();
      await loggedOut.promise;
      return extend(...args);
    });
    const client = rawClient(relayAt(1).port, rawMessage({ cookie, headers: ['Connection: close'] }));
    await checked.promise;
    expect((await post(0, '/auth/logout', cookie)).status).toBe(204);
    loggedOut.resolve();
    await client.closed;
    expect(client.text()).toMatch(/^HTTP\/1\.1 401 [\s\S]*"code":"(unauthenticated|session_ended)"/);
    expect(upstream.sockets).toHaveLength(0);
  });

  async function start(limits = {}) {
    // So long that a slot is still in Redis when a test looks for it.
    const environment = { RATE_WINDOW_MS: '60000' };
    const all = await startAll({ count: 2, shared: true, wired: true, limits, environment });
    const cookie = await all.relayAt(0).signIn();
    return { ...all, cookie, redis: all.redis as RedisServer, wire: all.wire as FaultProxy };
  }
  /** Resolves once the instance has logged `times` times that Redis is lost, or ready. */
  const said = (relay: TestRelay, msg: 'redis lost' | 'redis ready', times = 1) =>
    until(() => relay.logs.filter((line) => line.msg === msg).length >= times);

  test('nothing that is published or stored contains a session id', async () => {
    const { cookie, redis, relayAt, open, post } = await start();
    const id = idOf(cookie);
    const heard: string[] = [];
    const listener = relayAt(1).parts.redis as NonNullable<TestRelay['parts']['redis']>;
    await listener.subscribe('bot-relay:removed-sessions', (message) => heard.push(message));
    await open(1, cookie);
    const names = (await redis.command('KEYS', '*')) as string[];
    const tickets = await redis.command('ZRANGE', 'bot-relay:{budget:acme/helper}:slots', '0', '-1');
    expect(tickets).toHaveLength(1);
    await post(0, '/auth/logout', cookie);
    await until(() => heard.length > 0);
    expect(heard).toEqual([sessionKey(id)]);
    expect(JSON.stringify([names, tickets, relayAt(0).logs, relayAt(1).logs])).not.toContain(id);
  });

  test('an instance that was cut off from Redis ends the streams of a logout when it is back', async () => {
    const { cookie, wire, relayAt, open, post } = await start();
    const other = await relayAt(0).signIn();
    const mine = await open(1, cookie);
    const others = await open(1, other);
    wire.cut();
    await said(relayAt(1), 'redis lost');
    expect((await post(0, '/auth/logout', cookie)).status).toBe(204);
    // The instance cannot know about the logout, so that open streams continue.
    mine.event('data: still\n\n');
    await mine.client.waitFor('data: still\n\n');
    wire.mend();
    await said(relayAt(1), 'redis ready', 2);
    await expectOver([mine]);
    await expectContinues(others);
  });

  test('an instance whose Redis fails while it catches up on missed logouts tries again', async () => {
    const { cookie, wire, relayAt, open, post } = await start();
    const mine = await open(1, cookie);
    wire.cut();
    await said(relayAt(1), 'redis lost');
    await post(0, '/auth/logout', cookie);
    const failing = jest.spyOn(relayAt(1).parts.sessions, 'state').mockRejectedValueOnce(new Error('away'));
    const extending = jest
      .spyOn(relayAt(1).parts.sessions, 'extend')
      .mockRejectedValueOnce(new Error('away'));
    wire.mend();
    await said(relayAt(1), 'redis ready', 2);
    await until(() => failing.mock.calls.length + extending.mock.calls.length > 0);
    expect(await mine.over()).toMatchObject(ENDED);
    expect(failing.mock.calls.length + extending.mock.calls.length).toBe(2);
  });

  test('the absolute limit ends streams also while Redis is away', async () => {
    const { cookie, wire, open } = await start({ idleMs: LIMIT_MS, absoluteMs: LIMIT_MS });
    const stream = await open(1, cookie);
    wire.cut();
    advancedMs = LIMIT_MS;
    expect(await stream.over()).toMatchObject(ENDED);
  });

  test('the idle limit does not end streams while Redis is away', async () => {
    const { cookie, wire, redis, relayAt, open } = await start({ idleMs: LIMIT_MS });
    const stream = await open(1, cookie);
    wire.cut();
    await said(relayAt(1), 'redis lost');
    advancedMs = LIMIT_MS;
    const answers = askedFor(relayAt(1));
    // The session may be in use at the other instance.
    await until(() => answers().length > 1);
    stream.event('data: still\n\n');
    await stream.client.waitFor('data: still\n\n');
    await expireIn(redis, cookie);
    wire.mend();
    await said(relayAt(1), 'redis ready', 2);
    await expectOver([stream]);
  });

  test('streams continue until their limits if Redis comes back without its sessions', async () => {
    const { cookie, redis, relayAt, isLive, open, post } = await start();
    const stream = await open(1, cookie);
    const answers = askedFor(relayAt(1));
    await redis.stop();
    await said(relayAt(1), 'redis lost');
    expectProblem(await post(0, '/auth/logout', cookie), 503, 'session_store_unavailable');
    await redis.start();
    await until(async () => (await relayAt(1).parts.redis?.answers()) === true, 20);
    expect(await isLive(1, cookie)).toBe(false);
    await until(async () =>
      (await Promise.allSettled(answers())).some(({ status }) => status === 'fulfilled'),
    );
    await expectContinues(stream);
  });
});
