import { setTimeout as sleep } from 'node:timers/promises';
import { afterEach, describe, expect, jest, test } from '@jest/globals';
import { sessionKey } from '../../src/authenticate/sessions/session-key.ts';
import { expectProblem } from '../support/call.ts';
import { type Instances, type OpenStream, startInstances } from '../support/instances.ts';
import { until } from '../support/pair.ts';
import { rawClient, rawMessage } from '../support/raw-client.ts';
import { LAST_CHUNK } from '../support/raw-upstream.ts';
import { describeWithRedis, type RedisServer } from '../support/redis.ts';
import type { RedisWire } from '../support/redis-wire.ts';
import { OTHER_USER, type TestRelay } from '../support/relay.ts';
import { change, idOf, stored } from '../support/sessions.ts';

/** The contract's limit on how long a stream may outlive its session, in ms. */
const SOON_MS = 2_000;
const ENDED = { code: 'session_ended', complete: true };

let all: Instances;
afterEach(() => all.close());

const relayAt = (at: number) => all.relays[at] as TestRelay;
const status = async (at: number, cookie: string) => (await all.get(at, '/auth/session', cookie)).status;

async function expectOverSoon(streams: readonly OpenStream[], from = performance.now()) {
  for (const over of await Promise.all(streams.map((stream) => stream.over())))
    expect(over).toMatchObject(ENDED);
  expect(performance.now() - from).toBeLessThan(SOON_MS);
}

async function expectGoesOn(stream: OpenStream) {
  stream.event('data: goes on\n\n');
  await stream.client.waitFor('data: goes on\n\n');
  stream.upstream.write(LAST_CHUNK);
  expect(await stream.over()).toMatchObject({ code: undefined, complete: true });
}

/** With `count` instances; the last one is another than the first if there is more than one. */
function sessionEnds(shared: boolean, count: number): void {
  const start = (limits = {}) =>
    startInstances({ count, shared, limits }).then((instances) => {
      all = instances;
    });
  const LAST = count - 1;

  test('a logout ends the streams of its session everywhere, and of no other (G7)', async () => {
    await start();
    const [cookie, other] = [await relayAt(0).signIn(), await relayAt(0).signIn()];
    const mine = [await all.stream(0, cookie), await all.stream(LAST, cookie)];
    const others = await all.stream(LAST, other);
    expect((await all.post(0, '/auth/logout', cookie)).status).toBe(204);
    await expectOverSoon(mine);
    expect(mine.every(({ upstream }) => upstream.destroyed)).toBe(true);
    await expectGoesOn(others);
  });

  test('logout-all ends all sessions of the user and their streams, and nobody else’s (G7)', async () => {
    await start();
    const mine = await Promise.all([0, 0, LAST].map((at) => relayAt(at).signIn()));
    const bobs = await relayAt(0).signIn(OTHER_USER);
    const streams = await Promise.all(mine.map((cookie, n) => all.stream(n === 0 ? 0 : LAST, cookie)));
    const bobsStream = await all.stream(LAST, bobs);
    const answer = await all.post(0, '/auth/logout-all', mine[0] as string);
    expect([answer.status, answer.body]).toEqual([204, '']);
    expect(answer.headers['set-cookie']?.[0]).toMatch(/^bot_relay_session=;.*Expires=Thu, 01 Jan 1970/);
    await expectOverSoon(streams);
    for (const cookie of mine)
      expect([await status(0, cookie), await status(LAST, cookie)]).toEqual([401, 401]);
    expect(await status(LAST, bobs)).toBe(200);
    await expectGoesOn(bobsStream);
    // The next session of the user is none of those.
    const next = await relayAt(LAST).signIn();
    await expectGoesOn(await all.stream(0, next));
  });

  test('a sign-in with the cookie of a session ends the streams of that session', async () => {
    await start();
    const cookie = await relayAt(0).signIn();
    const stream = await all.stream(LAST, cookie);
    const headers = { Cookie: cookie, 'Content-Type': 'application/json' };
    const body = JSON.stringify({ username: OTHER_USER.name, password: OTHER_USER.password });
    expect((await fetch(`${relayAt(0).url}/auth/login`, { method: 'POST', headers, body })).status).toBe(200);
    await expectOverSoon([stream]);
  });

  test('the absolute limit ends the streams of a session, also those that deliver (G7, G8)', async () => {
    await start();
    const cookie = await relayAt(0).signIn();
    const absoluteExpiresAt = Date.now() + 1500;
    await change(relayAt(0).sessions, idOf(cookie), { absoluteExpiresAt });
    const streams = [await all.stream(0, cookie), await all.stream(LAST, cookie)];
    const delivering = setInterval(() => streams[0]?.event(), 100);
    await Promise.all(streams.map((stream) => stream.over()));
    clearInterval(delivering);
    expect(Date.now()).toBeGreaterThanOrEqual(absoluteExpiresAt);
    expect(Date.now() - absoluteExpiresAt).toBeLessThan(SOON_MS);
    for (const stream of streams) expect(await stream.over()).toMatchObject(ENDED);
  });

  test('the idle limit ends the streams of a session that deliver nothing (G7)', async () => {
    await start({ idleMs: 1200 });
    const cookie = await relayAt(0).signIn();
    const streams = [await all.stream(0, cookie), await all.stream(LAST, cookie)];
    const { idleExpiresAt = 0 } = (await stored(relayAt(0).sessions, idOf(cookie))) ?? {};
    await Promise.all(streams.map((stream) => stream.over()));
    expect(Date.now()).toBeGreaterThanOrEqual(idleExpiresAt);
    expect(Date.now() - idleExpiresAt).toBeLessThan(SOON_MS);
    for (const stream of streams) expect(await stream.over()).toMatchObject(ENDED);
    expect(await status(0, cookie)).toBe(401);
  });

  test('a stream that delivers keeps its session alive, and with it the silent ones (G8)', async () => {
    await start({ idleMs: 1600 });
    const cookie = await relayAt(0).signIn();
    const delivering = await all.stream(0, cookie);
    const silent = await all.stream(LAST, cookie);
    const until = Date.now() + 4000;
    while (Date.now() < until) {
      delivering.event();
      await sleep(200);
    }
    expect([await status(0, cookie), await status(LAST, cookie)]).toEqual([200, 200]);
    delivering.upstream.write(LAST_CHUNK);
    expect(await delivering.over()).toMatchObject({ code: undefined, complete: true });
    expect(silent.client.socket.destroyed).toBe(false);
    // It is nobody's any more.
    expect(await silent.over()).toMatchObject(ENDED);
  });

  test('a message that was let in just before a logout and begins behind it is refused (G6)', async () => {
    await start();
    const cookie = await relayAt(0).signIn();
    const { sessions } = relayAt(LAST);
    const extend = sessions.extend.bind(sessions);
    const loggedOut = Promise.withResolvers<void>();
    const letIn = Promise.withResolvers<void>();
    jest.spyOn(sessions, 'extend').mockImplementation(async (...args) => {
      letIn.resolve();
      await loggedOut.promise;
      return extend(...args);
    });
    const client = rawClient(relayAt(LAST).port, rawMessage({ cookie, headers: ['Connection: close'] }));
    await letIn.promise;
    expect((await all.post(0, '/auth/logout', cookie)).status).toBe(204);
    loggedOut.resolve();
    await client.closed;
    expect(client.text()).toMatch(/^HTTP\/1\.1 401 [\s\S]*"code":"(unauthenticated|session_ended)"/);
    expect(all.upstream.sockets).toHaveLength(0);
  });
}

describe('with one instance', () => {
  sessionEnds(false, 1);
});

describeWithRedis('with two instances and Redis', () => {
  sessionEnds(true, 2);

  async function start(limits = {}) {
    all = await startInstances({ count: 2, shared: true, wired: true, limits });
    const cookie = await relayAt(0).signIn();
    return { cookie, redis: all.redis as RedisServer, wire: all.wire as RedisWire };
  }
  /** Resolves once the instance has said in its log for the `times`th time that Redis is lost, or back. */
  const said = (at: number, msg: 'redis lost' | 'redis ready', times = 1) =>
    until(() => relayAt(at).logs.filter((line) => line.msg === msg).length >= times);

  test('nothing that is published or stored names a session by its id', async () => {
    const { cookie, redis } = await start();
    const id = idOf(cookie);
    const heard: string[] = [];
    const listener = relayAt(1).redis as NonNullable<TestRelay['redis']>;
    await listener.subscribe('bot-relay:removed-sessions', (message) => heard.push(message));
    await all.stream(1, cookie);
    const names = (await redis.command('KEYS', '*')) as string[];
    const tickets = await redis.command('ZRANGE', 'bot-relay:{budget:acme/helper}:slots', '0', '-1');
    expect(tickets).toHaveLength(1);
    await all.post(0, '/auth/logout', cookie);
    await until(() => heard.length > 0);
    expect(heard).toEqual([sessionKey(id)]);
    expect(JSON.stringify([names, tickets, relayAt(0).logs, relayAt(1).logs])).not.toContain(id);
  });

  test('an instance that was cut off from Redis ends the streams of a logout when it is back (G7)', async () => {
    const { cookie, wire } = await start();
    const other = await relayAt(0).signIn();
    const mine = await all.stream(1, cookie);
    const others = await all.stream(1, other);
    wire.cut();
    await said(1, 'redis lost');
    expect((await all.post(0, '/auth/logout', cookie)).status).toBe(204);
    // It cannot know, and what is open goes on.
    await sleep(1200);
    mine.event('data: still\n\n');
    await mine.client.waitFor('data: still\n\n');
    wire.mend();
    await said(1, 'redis ready', 2);
    await expectOverSoon([mine]);
    await expectGoesOn(others);
  });

  test('an instance whose Redis fails while it asks for what it missed asks again (G7)', async () => {
    const { cookie, wire } = await start();
    const mine = await all.stream(1, cookie);
    wire.cut();
    await said(1, 'redis lost');
    await all.post(0, '/auth/logout', cookie);
    const failing = jest.spyOn(relayAt(1).sessions, 'state').mockRejectedValueOnce(new Error('away'));
    const extending = jest.spyOn(relayAt(1).sessions, 'extend').mockRejectedValueOnce(new Error('away'));
    wire.mend();
    await said(1, 'redis ready', 2);
    await until(() => failing.mock.calls.length + extending.mock.calls.length > 0);
    expect(await mine.over()).toMatchObject(ENDED);
    expect(failing.mock.calls.length + extending.mock.calls.length).toBe(2);
  });

  test('while Redis is out of reach the absolute limit ends streams all the same (G7)', async () => {
    const { cookie, wire } = await start({ idleMs: 1500, absoluteMs: 1500 });
    const stream = await all.stream(1, cookie);
    const endsAt = Date.now() + 1500;
    wire.cut();
    expect(await stream.over()).toMatchObject(ENDED);
    expect(Date.now() - endsAt).toBeLessThan(SOON_MS);
  });

  test('while Redis is out of reach nobody knows of the idle limit, and what is open goes on (G12)', async () => {
    const { cookie, wire } = await start({ idleMs: 1000 });
    const stream = await all.stream(1, cookie);
    wire.cut();
    await said(1, 'redis lost');
    // At the other instance the same session may be in use.
    await sleep(2500);
    stream.event('data: still\n\n');
    await stream.client.waitFor('data: still\n\n');
    wire.mend();
    await said(1, 'redis ready', 2);
    await expectOverSoon([stream]);
  });

  test('streams go on when Redis comes back without its sessions, until their limits (G12)', async () => {
    const { cookie, redis } = await start();
    const stream = await all.stream(1, cookie);
    await redis.stop();
    await said(1, 'redis lost');
    expectProblem(await all.post(0, '/auth/logout', cookie), 503, 'session_store_unavailable');
    await redis.start();
    while (!(await relayAt(1).redis?.answers())) await sleep(20);
    expect(await status(1, cookie)).toBe(401);
    await sleep(1200);
    await expectGoesOn(stream);
  });
});
