import { afterAll, describe, expect, jest, test } from '@jest/globals';
import { sessionKey } from '../../src/authenticate/sessions/session-key.ts';
import { expectProblem } from '../support/call.ts';
import { type InstancesOptions, type OpenStream, startInstances } from '../support/instances.ts';
import { rawClient, rawMessage } from '../support/raw-client.ts';
import { LAST_CHUNK } from '../support/raw-upstream.ts';
import { describeWithRedis, type RedisServer } from '../support/redis.ts';
import type { RedisProxy } from '../support/redis-proxy.ts';
import { OTHER_USER, type TestRelay } from '../support/relay.ts';
import { until } from '../support/relay-and-upstream.ts';
import { change, idOf, stored } from '../support/sessions.ts';
import { sleep } from '../support/sleep.ts';
import { whileAwake } from '../support/while-awake.ts';

/** How long a stream may stay open after the end of its session, in ms. */
const SOON_MS = 5_000;
/** The limit of a session in the cases that wait for it, in ms. */
const LIMIT_MS = 2_500;
const ENDED = { code: 'session_ended', complete: true };

/** For a case whose limits are short times. */
const testAwake = (title: string, run: () => Promise<void>) => test.concurrent(title, whileAwake(run));

// Each case has its own instances, so that the cases can wait side by side.
const closings: (() => Promise<void>)[] = [];
afterAll(() => Promise.all(closings.map((close) => close())));

async function startAll(options: InstancesOptions) {
  const all = await startInstances(options);
  closings.push(all.close);
  return {
    ...all,
    open: all.stream,
    relayAt: (at: number) => all.relays[at] as TestRelay,
    status: async (at: number, cookie: string) => (await all.get(at, '/auth/session', cookie)).status,
  };
}

async function expectOverSoon(streams: readonly OpenStream[], from = performance.now()) {
  for (const over of await Promise.all(streams.map((stream) => stream.over())))
    expect(over).toMatchObject(ENDED);
  expect(performance.now() - from).toBeLessThan(SOON_MS);
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

  test.concurrent('a logout ends the streams of its session at all instances, and of no other session', async () => {
    const { relayAt, open, post } = await start();
    const [cookie, other] = [await relayAt(0).signIn(), await relayAt(0).signIn()];
    const mine = [await open(0, cookie), await open(LAST, cookie)];
    const others = await open(LAST, other);
    expect((await post(0, '/auth/logout', cookie)).status).toBe(204);
    await expectOverSoon(mine);
    await until(() => mine.every(({ upstream }) => upstream.destroyed));
    await expectContinues(others);
  });

  test.concurrent('logout-all ends all sessions and streams of the user, and of no other user', async () => {
    const { relayAt, status, open, post } = await start();
    const mine = await Promise.all([0, 0, LAST].map((at) => relayAt(at).signIn()));
    const bobs = await relayAt(0).signIn(OTHER_USER);
    const streams = await Promise.all(mine.map((cookie, n) => open(n === 0 ? 0 : LAST, cookie)));
    const bobsStream = await open(LAST, bobs);
    const answer = await post(0, '/auth/logout-all', mine[0] as string);
    expect([answer.status, answer.body]).toEqual([204, '']);
    expect(answer.headers['set-cookie']?.[0]).toMatch(/^bot_relay_session=;.*Expires=Thu, 01 Jan 1970/);
    await expectOverSoon(streams);
    for (const cookie of mine)
      expect([await status(0, cookie), await status(LAST, cookie)]).toEqual([401, 401]);
    expect(await status(LAST, bobs)).toBe(200);
    await expectContinues(bobsStream);
    // A later session of the user is not affected.
    const next = await relayAt(LAST).signIn();
    await expectContinues(await open(0, next));
  });

  test.concurrent('a sign-in with the cookie of a session ends the streams of that session', async () => {
    const { relayAt, open } = await start();
    const cookie = await relayAt(0).signIn();
    const stream = await open(LAST, cookie);
    const headers = { Cookie: cookie, 'Content-Type': 'application/json' };
    const body = JSON.stringify({ username: OTHER_USER.name, password: OTHER_USER.password });
    expect((await fetch(`${relayAt(0).url}/auth/login`, { method: 'POST', headers, body })).status).toBe(200);
    await expectOverSoon([stream]);
  });

  testAwake('the absolute limit ends the streams of a session, also those that carry data', async () => {
    const { relayAt, open } = await start();
    const cookie = await relayAt(0).signIn();
    const absoluteExpiresAt = Date.now() + LIMIT_MS;
    await change(relayAt(0).sessions, idOf(cookie), { absoluteExpiresAt });
    const streams = [await open(0, cookie), await open(LAST, cookie)];
    const delivering = setInterval(() => streams[0]?.event(), 100);
    await Promise.all(streams.map((stream) => stream.over()));
    clearInterval(delivering);
    expect(Date.now()).toBeGreaterThanOrEqual(absoluteExpiresAt);
    expect(Date.now() - absoluteExpiresAt).toBeLessThan(SOON_MS);
    for (const stream of streams) expect(await stream.over()).toMatchObject(ENDED);
  });

  testAwake('the idle limit ends the silent streams of a session', async () => {
    const { relayAt, status, open } = await start({ idleMs: LIMIT_MS });
    const cookie = await relayAt(0).signIn();
    const streams = [await open(0, cookie), await open(LAST, cookie)];
    const { idleExpiresAt = 0 } = (await stored(relayAt(0).sessions, idOf(cookie))) ?? {};
    await Promise.all(streams.map((stream) => stream.over()));
    expect(Date.now()).toBeGreaterThanOrEqual(idleExpiresAt);
    expect(Date.now() - idleExpiresAt).toBeLessThan(SOON_MS);
    for (const stream of streams) expect(await stream.over()).toMatchObject(ENDED);
    expect(await status(0, cookie)).toBe(401);
  });

  test.concurrent('a message whose session check began before a logout and ends after it is refused', async () => {
    const { relayAt, post, upstream } = await start();
    const cookie = await relayAt(0).signIn();
    const { sessions } = relayAt(LAST);
    const extend = sessions.extend.bind(sessions);
    const loggedOut = Promise.withResolvers<void>();
    const checked = Promise.withResolvers<void>();
    jest.spyOn(sessions, 'extend').mockImplementation(async (...args) => {
      checked.resolve();
      await loggedOut.promise;
      return extend(...args);
    });
    const client = rawClient(relayAt(LAST).port, rawMessage({ cookie, headers: ['Connection: close'] }));
    await checked.promise;
    expect((await post(0, '/auth/logout', cookie)).status).toBe(204);
    loggedOut.resolve();
    await client.closed;
    expect(client.text()).toMatch(/^HTTP\/1\.1 401 [\s\S]*"code":"(unauthenticated|session_ended)"/);
    expect(upstream.sockets).toHaveLength(0);
  });
}

describe('with one instance', () => {
  sessionEnds(false, 1);
});

describeWithRedis('with two instances and Redis', () => {
  sessionEnds(true, 2);

  async function start(limits = {}) {
    // So long that a slot is still in Redis when a test looks for it.
    const environment = { RATE_WINDOW_MS: '60000' };
    const all = await startAll({ count: 2, shared: true, wired: true, limits, environment });
    const cookie = await all.relayAt(0).signIn();
    return { ...all, cookie, redis: all.redis as RedisServer, wire: all.wire as RedisProxy };
  }
  /** Resolves once the instance has logged `times` times that Redis is lost, or ready. */
  const said = (relay: TestRelay, msg: 'redis lost' | 'redis ready', times = 1) =>
    until(() => relay.logs.filter((line) => line.msg === msg).length >= times);

  test.concurrent('nothing that is published or stored contains a session id', async () => {
    const { cookie, redis, relayAt, open, post } = await start();
    const id = idOf(cookie);
    const heard: string[] = [];
    const listener = relayAt(1).redis as NonNullable<TestRelay['redis']>;
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

  test.concurrent('an instance that was cut off from Redis ends the streams of a logout when it is back', async () => {
    const { cookie, wire, relayAt, open, post } = await start();
    const other = await relayAt(0).signIn();
    const mine = await open(1, cookie);
    const others = await open(1, other);
    wire.cut();
    await said(relayAt(1), 'redis lost');
    expect((await post(0, '/auth/logout', cookie)).status).toBe(204);
    // The instance cannot know about the logout, so that open streams continue.
    await sleep(1200);
    mine.event('data: still\n\n');
    await mine.client.waitFor('data: still\n\n');
    wire.mend();
    await said(relayAt(1), 'redis ready', 2);
    await expectOverSoon([mine]);
    await expectContinues(others);
  });

  test.concurrent('an instance whose Redis fails while it catches up on missed logouts tries again', async () => {
    const { cookie, wire, relayAt, open, post } = await start();
    const mine = await open(1, cookie);
    wire.cut();
    await said(relayAt(1), 'redis lost');
    await post(0, '/auth/logout', cookie);
    const failing = jest.spyOn(relayAt(1).sessions, 'state').mockRejectedValueOnce(new Error('away'));
    const extending = jest.spyOn(relayAt(1).sessions, 'extend').mockRejectedValueOnce(new Error('away'));
    wire.mend();
    await said(relayAt(1), 'redis ready', 2);
    await until(() => failing.mock.calls.length + extending.mock.calls.length > 0);
    expect(await mine.over()).toMatchObject(ENDED);
    expect(failing.mock.calls.length + extending.mock.calls.length).toBe(2);
  });

  testAwake('the absolute limit ends streams also while Redis is away', async () => {
    const { cookie, wire, open } = await start({ idleMs: LIMIT_MS, absoluteMs: LIMIT_MS });
    const stream = await open(1, cookie);
    const endsAt = Date.now() + LIMIT_MS;
    wire.cut();
    expect(await stream.over()).toMatchObject(ENDED);
    expect(Date.now() - endsAt).toBeLessThan(SOON_MS);
  });

  testAwake('the idle limit does not end streams while Redis is away', async () => {
    const { cookie, wire, relayAt, open } = await start({ idleMs: LIMIT_MS });
    const stream = await open(1, cookie);
    wire.cut();
    await said(relayAt(1), 'redis lost');
    // The session may be in use at the other instance.
    await sleep(LIMIT_MS + 1_500);
    stream.event('data: still\n\n');
    await stream.client.waitFor('data: still\n\n');
    wire.mend();
    await said(relayAt(1), 'redis ready', 2);
    await expectOverSoon([stream]);
  });

  test.concurrent('streams continue until their limits if Redis comes back without its sessions', async () => {
    const { cookie, redis, relayAt, status, open, post } = await start();
    const stream = await open(1, cookie);
    await redis.stop();
    await said(relayAt(1), 'redis lost');
    expectProblem(await post(0, '/auth/logout', cookie), 503, 'session_store_unavailable');
    await redis.start();
    while (!(await relayAt(1).redis?.answers())) await sleep(20);
    expect(await status(1, cookie)).toBe(401);
    await sleep(1200);
    await expectContinues(stream);
  });
});
