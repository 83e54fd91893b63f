import { afterAll, afterEach, beforeAll, describe, expect, jest, test } from '@jest/globals';
import { Problem } from '../../src/errors.ts';
import {
  type Answer,
  type Call,
  call,
  expectNobody,
  expectProblem,
  isSignedIn,
} from '../harness/clients/call.ts';

import { rawClient } from '../harness/clients/raw-client.ts';
import { describeWithRedis, type RedisServer, startRedis, stopRedis } from '../harness/redis/redis.ts';
import { BOT_PATH, CANARY, MESSAGE, startRelay, type TestRelay } from '../harness/relay/relay.ts';
import { change, idOf, signedCookie, stored } from '../harness/relay/sessions.ts';
import {
  type RawRequest,
  type RawUpstream,
  startRawUpstream,
  wholeStream,
} from '../harness/service/raw-upstream.ts';

const GUEST = /^guest:[0-9a-f]{8}-[0-9a-f]{4}-4[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}$/;
const MINUTE = 60_000;
const ALLOWED = 'https://partner.example.org';

let upstream: RawUpstream;
let relay: TestRelay;
beforeAll(async () => {
  upstream = await startRawUpstream((socket) => socket.write(wholeStream('data: 1\n\n')));
  relay = await startRelay(upstream.url, {
    ...{ AUTH_MODE: 'guest', ALLOWED_ORIGINS: ALLOWED, USER_HEADER: 'X-User-Id', GUESTS_PER_ADDRESS: '0' },
  });
});
afterEach(() => void jest.restoreAllMocks());
afterAll(async () => {
  await relay.close();
  await upstream.close();
});

const post = (path: string, cookie = '', { headers, ...more }: Call = {}) =>
  call(relay.port, path, {
    method: 'POST',
    headers: { ...(cookie && { Cookie: cookie }), ...headers },
    ...more,
  });
const session = (Cookie: string) => call(relay.port, '/auth/session', { headers: { Cookie } });
const send = (cookie: string, headers: Call['headers'] = {}) =>
  post(BOT_PATH, cookie, { headers: { 'Content-Type': 'application/json', ...headers }, body: MESSAGE });
const cookieOf = ({ headers }: Answer) => (headers['set-cookie']?.[0] ?? '').split(';', 1)[0] as string;
const userOf = ({ body }: Answer) => (JSON.parse(body) as { user: { id: string } }).user.id;

/** A new guest. */
async function becomeGuest(cookie = '', options: Call = {}) {
  const answer = await post('/auth/guest', cookie, options);
  expect([answer.status, userOf(answer)]).toEqual([200, expect.stringMatching(GUEST)]);
  return { answer, cookie: cookieOf(answer), user: userOf(answer) };
}
type Guest = Awaited<ReturnType<typeof becomeGuest>>;

/** Expects that the cookie of a guest gives another session of another guest. */
async function expectReplaced({ cookie, user }: Guest): Promise<void> {
  const next = await becomeGuest(cookie);
  expect([next.user === user, idOf(next.cookie) === idOf(cookie)]).toEqual([false, false]);
  expectNobody(await session(cookie));
  expect(await stored(relay.parts.sessions, idOf(cookie))).toBeNull();
}

describe('POST /auth/guest', () => {
  test('begins an ordinary session of a new user', async () => {
    const { answer, cookie, user } = await becomeGuest();
    const time = expect.stringMatching(/^\d{4}-\d\d-\d\dT.*Z$/);
    expect(JSON.parse(answer.body)).toEqual({
      ...{ user: { id: user, name: 'Guest' }, idleExpiresAt: time, absoluteExpiresAt: time },
    });
    expect(answer.headers['set-cookie']).toEqual([
      expect.stringMatching(/^bot_relay_session=[\w-]{32}\.[\w-]{43}; Path=\/; HttpOnly; SameSite=Strict$/),
    ]);
    expect(answer.headers['content-type']).toMatch(/^application\/json/);
    expect(answer.headers['cache-control']).toBe('no-store');
    expect((await session(cookie)).body).toBe(answer.body);
    expect((await becomeGuest()).user).not.toBe(user);
    expect(await relay.logLine(({ userId }) => userId === user)).toMatchObject({ route: '/auth/guest' });
  });

  test('is 503 if the session cannot be extended, and the guest stays the same', async () => {
    const { cookie, user } = await becomeGuest();
    const away = new Problem('session_store_unavailable', 'Try again.', { retryAfter: 1 });
    jest.spyOn(relay.parts.sessions, 'extend').mockRejectedValueOnce(away);
    const answer = await post('/auth/guest', cookie);
    expectProblem(answer, 503, 'session_store_unavailable');
    expect(answer.headers).not.toHaveProperty('set-cookie');
    expect(userOf(await session(cookie))).toBe(user);
  });

  test('keeps the session of a guest who has one, and extends it to its absolute limit at most', async () => {
    const { cookie, user } = await becomeGuest();
    const absoluteExpiresAt = Date.now() + 5 * MINUTE;
    await change(relay.parts.sessions, idOf(cookie), {
      idleExpiresAt: Date.now() + MINUTE,
      absoluteExpiresAt,
    });
    const again = await post('/auth/guest', cookie);
    expect([again.status, userOf(again)]).toEqual([200, user]);
    expect(again.headers).not.toHaveProperty('set-cookie');
    const limits = { idleExpiresAt: absoluteExpiresAt, absoluteExpiresAt };
    expect(await stored(relay.parts.sessions, idOf(cookie))).toMatchObject(limits);
    const shown = new Date(absoluteExpiresAt).toISOString();
    expect(JSON.parse(again.body)).toMatchObject({ idleExpiresAt: shown, absoluteExpiresAt: shown });
  });

  test('after the end of a session begins one of another guest', async () => {
    const guest = await becomeGuest();
    await change(relay.parts.sessions, idOf(guest.cookie), { idleExpiresAt: Date.now() - 1 });
    await expectReplaced(guest);
  });

  test.each(['/auth/logout', '/auth/logout-all'])(
    'after %s begins a session of another guest',
    async (path) => {
      const [guest, other] = [await becomeGuest(), await becomeGuest()];
      const out = await post(path, guest.cookie);
      expect([out.status, out.body]).toEqual([204, '']);
      expect(out.headers['set-cookie']?.[0]).toMatch(/^bot_relay_session=;.*Expires=Thu, 01 Jan 1970/);
      expect((await send(guest.cookie)).status).toBe(401);
      await expectReplaced(guest);
      // Two guests are two users.
      expect(userOf(await session(other.cookie))).toBe(other.user);
    },
  );

  test('does not restore a session that is logged out during the request', async () => {
    const guest = await becomeGuest();
    const extend = relay.parts.sessions.extend.bind(relay.parts.sessions);
    jest.spyOn(relay.parts.sessions, 'extend').mockImplementation(async (...args) => {
      await post('/auth/logout', guest.cookie);
      return extend(...args);
    });
    await expectReplaced(guest);
  });

  test('never accepts a session id that was chosen by somebody else', async () => {
    const fixed = signedCookie('x'.repeat(32), CANARY.sessionSecret, 'guest');
    for (const cookie of ['bot_relay_session=fixed', `bot_relay_session=${'x'.repeat(32)}`, fixed])
      expect(idOf((await becomeGuest(cookie)).cookie)).not.toContain('xxxx');
  });

  test('ignores a query and a body, and answers before the end of it', async () => {
    expect(userOf(await post('/auth/guest?id=admin&user[id]=admin'))).toMatch(GUEST);
    const headers = { 'Content-Type': 'application/json' };
    for (const body of ['{"user":{"id":"admin"}}', '{']) await becomeGuest('', { headers, body });
    const head = ['Host: app.example.com', 'Transfer-Encoding: chunked', '', '10000', 'x'];
    const client = rawClient(relay.port, ['POST /auth/guest HTTP/1.1', ...head].join('\r\n'));
    await client.waitFor('"absoluteExpiresAt"');
    expect(client.text()).toMatch(/^HTTP\/1\.1 200 /);
    client.socket.destroy();
  });

  test('is refused from another origin, and by another method, without a cookie', async () => {
    const set = jest.spyOn(relay.parts.sessions, 'set');
    for (const [method, headers, status] of [
      ['POST', { 'Sec-Fetch-Site': 'cross-site', Origin: 'https://other.example.net' }, 403],
      ['OPTIONS', { Origin: ALLOWED, 'Access-Control-Request-Method': 'POST' }, 204],
      ['OPTIONS', { Origin: 'https://other.example.net', 'Access-Control-Request-Method': 'POST' }, 405],
      ...['GET', 'HEAD', 'PUT', 'DELETE'].map((method) => [method, {}, 405] as const),
    ] as const) {
      const answer = await call(relay.port, '/auth/guest', { method, headers });
      expect([method, answer.status]).toEqual([method, status]);
      if (status === 405) expect(answer.headers.allow).toBe('POST');
      expect(answer.headers).not.toHaveProperty('set-cookie');
    }
    expect(set).not.toHaveBeenCalled();
    const headers = { 'Sec-Fetch-Site': 'cross-site', Origin: ALLOWED };
    const { answer } = await becomeGuest('', { headers });
    expect(answer.headers['access-control-allow-origin']).toBe(ALLOWED);
  });
});

describe('a message', () => {
  test('of a guest is streamed, and the bot service gets the user only from the session', async () => {
    const [one, two] = [await becomeGuest(), await becomeGuest()];
    for (const { cookie, user } of [one, two, one]) {
      const asked = upstream.nextRequest();
      const evil = { 'X-User-Id': ['evil', 'evil-2'], X_User_Id: 'evil' };
      expect(await send(cookie, evil)).toMatchObject({ status: 200, body: 'data: 1\n\n' });
      const { all, headers } = (await asked) as RawRequest;
      expect(all('x-user-id')).toEqual([user]);
      expect(JSON.stringify(headers)).not.toContain('evil');
    }
  });

  test('of nobody is answered with 401, and begins no session', async () => {
    const set = jest.spyOn(relay.parts.sessions, 'set');
    const before = upstream.requests.length;
    for (const cookie of ['', signedCookie('x'.repeat(32), CANARY.sessionSecret, 'guest')]) {
      const answer = await send(cookie, { Accept: 'text/html' });
      expectProblem(answer, 401, 'unauthenticated');
      expect(answer.headers).not.toHaveProperty('set-cookie');
    }
    expect(set).not.toHaveBeenCalled();
    expect(upstream.requests).toHaveLength(before);
  });
});

const start = (environment: Record<string, string>, limits = {}) =>
  startRelay('http://127.0.0.1:9', { AUTH_MODE: 'guest', ...environment }, limits);
const postTo = ({ port }: TestRelay, headers = {}, path = '/auth/guest') =>
  call(port, path, { method: 'POST', headers });

function expectRefused(answer: Answer, windowMs = 600_000) {
  expectProblem(answer, 429, 'too_many_attempts');
  const seconds = Number(answer.headers['retry-after']);
  expect([seconds >= 1, seconds <= windowMs / 1000]).toEqual([true, true]);
  for (const name of ['set-cookie', 'ratelimit', 'ratelimit-policy'])
    expect(answer.headers).not.toHaveProperty(name);
}

describe('the limit on guests', () => {
  test('is that of the connection without a trusted proxy', async () => {
    const own = await start({ GUESTS_PER_ADDRESS: '1' });
    expect((await postTo(own, { 'X-Forwarded-For': '192.0.2.1' })).status).toBe(200);
    expectRefused(await postTo(own, { 'X-Forwarded-For': '192.0.2.2', Forwarded: 'for=192.0.2.9' }));
    await own.close();
  });

  test('leaves repeated requests of one guest to the limit by session, and is off with 0', async () => {
    const own = await start({ GUESTS_PER_ADDRESS: '0', CLIENT_LIMIT_PER_SESSION: '2' });
    const Cookie = cookieOf(await postTo(own));
    for (let n = 0; n < 2; n += 1) expect((await postTo(own, { Cookie })).status).toBe(200);
    expectRefused(await postTo(own, { Cookie }), 60_000);
    for (let n = 0; n < 120; n += 1) expect((await postTo(own)).status).toBe(200);
    await own.close();
  });
});

describeWithRedis('the limit on guests at two instances', () => {
  let redis: RedisServer;
  let relays: TestRelay[];
  beforeAll(async () => {
    redis = await startRedis();
    const environment = { GUESTS_PER_ADDRESS: '3', TRUST_PROXY: '1', REDIS_URL: redis.url };
    relays = [await start(environment), await start(environment)];
  });
  afterAll(async () => {
    for (const one of relays) await one.close();
    stopRedis();
  });
  let turns = 0;
  /** Each request goes to the next instance. */
  const next = () => relays[++turns % relays.length] as TestRelay;
  const arrive = (from: string, headers = {}) => postTo(next(), { 'X-Forwarded-For': from, ...headers });

  test('allows so many new ones from one address, by a hash of it; those who have a session go on', async () => {
    const from = '192.0.2.1';
    expect((await arrive(from, { 'Sec-Fetch-Site': 'cross-site' })).status).toBe(403);
    const guests = [await arrive(from), await arrive(from), await arrive(from)];
    expect(guests.map(({ status }) => status)).toEqual([200, 200, 200]);
    for (const _relay of relays) expectRefused(await arrive(from));
    const headers = { Cookie: cookieOf(guests[0] as Answer) };
    for (const { port } of relays) {
      expect(isSignedIn(await call(port, '/auth/session', { headers }))).toBe(true);
      expect(userOf(await arrive(from, headers))).toBe(userOf(guests[0] as Answer));
    }
    expect((await postTo(next(), headers, '/auth/logout')).status).toBe(204);
    for (const { port } of relays) expectNobody(await call(port, '/auth/session', { headers }));
    // Who signs out and comes back is a new guest.
    expectRefused(await arrive(from, headers));
    const [key, ...more] = (await redis.command('KEYS', 'bot-relay:limit:guests:*')) as string[];
    expect([key, more]).toEqual([expect.stringMatching(/^bot-relay:limit:guests:[\w-]{43}$/), []]);
    expect(await redis.command('PTTL', key as string)).toBeGreaterThan(0);
  });

  test('counts by address behind a trusted proxy, where an IPv6 /56 is one address', async () => {
    // The addresses that the client itself has sent do not count.
    for (const n of [1, 2, 3])
      expect((await arrive(`192.0.2.${n}, 2001:db8:0:aa0${n}::${n}`)).status).toBe(200);
    expectRefused(await arrive('192.0.2.4, 2001:db8:0:aaff:1:2:3:4'));
    expect((await arrive('2001:db8:0:ab00::1')).status).toBe(200);
  });
});
