import { afterAll, afterEach, beforeAll, describe, expect, jest, test } from '@jest/globals';
import { type Answer, type Call, call, expectNobody, expectProblem } from '../harness/clients/call.ts';
import { rawClient } from '../harness/clients/raw-client.ts';
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
const cookieIn = ({ headers }: Answer) => (headers['set-cookie']?.[0] ?? '').split(';', 1)[0] as string;
const userIn = ({ body }: Answer) => (JSON.parse(body) as { user: { id: string } }).user.id;

/** A new guest. */
async function becomeGuest(cookie = '', options: Call = {}) {
  const answer = await post('/auth/guest', cookie, options);
  expect([answer.status, userIn(answer)]).toEqual([200, expect.stringMatching(GUEST)]);
  return { answer, cookie: cookieIn(answer), user: userIn(answer) };
}
type Guest = Awaited<ReturnType<typeof becomeGuest>>;

/** Expects that the cookie of a guest gives another session of another guest. */
async function expectReplaced({ cookie, user }: Guest): Promise<void> {
  const next = await becomeGuest(cookie);
  expect([next.user === user, idOf(next.cookie) === idOf(cookie)]).toEqual([false, false]);
  expectNobody(await session(cookie));
  expect(await stored(relay.sessions, idOf(cookie))).toBeNull();
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
    expect(await relay.logLine(({ route }) => route === '/auth/guest')).toMatchObject({ userId: user });
  });

  test.each([
    ['the idle limit of the relay', 60, 30],
    ['the absolute limit of the session', 5, 5],
  ])('keeps the session of a guest who has one, and extends it to %s', async (_what, absolute, idle) => {
    const { cookie, user } = await becomeGuest();
    const now = Date.now();
    const absoluteExpiresAt = now + absolute * MINUTE;
    await change(relay.sessions, idOf(cookie), { idleExpiresAt: now + MINUTE, absoluteExpiresAt });
    for (let n = 0; n < 2; n += 1) {
      const again = await post('/auth/guest', cookie);
      expect([again.status, userIn(again)]).toEqual([200, user]);
      expect(again.headers).not.toHaveProperty('set-cookie');
      const held = await stored(relay.sessions, idOf(cookie));
      expect(held?.idleExpiresAt).toBeGreaterThanOrEqual(now + idle * MINUTE);
      expect(held?.absoluteExpiresAt).toBe(absoluteExpiresAt);
      expect(JSON.parse(again.body)).toMatchObject({
        idleExpiresAt: new Date(held?.idleExpiresAt ?? 0).toISOString(),
        absoluteExpiresAt: new Date(absoluteExpiresAt).toISOString(),
      });
    }
  });

  test.each(['idleExpiresAt', 'absoluteExpiresAt'])(
    'after %s begins a session of another guest',
    async (limit) => {
      const guest = await becomeGuest();
      await change(relay.sessions, idOf(guest.cookie), { [limit]: Date.now() - 1 });
      await expectReplaced(guest);
    },
  );

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
      expect(userIn(await session(other.cookie))).toBe(other.user);
    },
  );

  test('does not restore a session that is logged out during the request', async () => {
    const guest = await becomeGuest();
    const extend = relay.sessions.extend.bind(relay.sessions);
    jest.spyOn(relay.sessions, 'extend').mockImplementation(async (...args) => {
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

  test.each<[string, Call]>([
    ['JSON', { headers: { 'Content-Type': 'application/json' }, body: '{"user":{"id":"admin"}}' }],
    ['a form', { headers: { 'Content-Type': 'application/x-www-form-urlencoded' }, body: 'id=admin' }],
    ['what is not JSON', { headers: { 'Content-Type': 'application/json' }, body: '{' }],
    ['20 MiB', { body: Buffer.alloc(20 * 1024 * 1024, 'x') }],
  ])('ignores a body of %s', async (_what, options) => {
    await becomeGuest('', options);
  });

  test('ignores a query, and answers before the end of a body', async () => {
    expect(userIn(await post('/auth/guest?id=admin&user[id]=admin'))).toMatch(GUEST);
    const head = ['Host: app.example.com', 'Transfer-Encoding: chunked', '', '10000', 'x'];
    const client = rawClient(relay.port, ['POST /auth/guest HTTP/1.1', ...head].join('\r\n'));
    await client.waitFor('"absoluteExpiresAt"');
    expect(client.text()).toMatch(/^HTTP\/1\.1 200 /);
    client.socket.destroy();
  });

  test('is refused from another origin, and by another method, without a cookie', async () => {
    const set = jest.spyOn(relay.sessions, 'set');
    for (const [method, headers, status] of [
      ['POST', { 'Sec-Fetch-Site': 'cross-site', Origin: 'https://other.example.net' }, 403],
      ['POST', { Origin: 'https://other.example.net' }, 403],
      ['OPTIONS', { Origin: ALLOWED, 'Access-Control-Request-Method': 'POST' }, 204],
      ['OPTIONS', { Origin: 'https://other.example.net', 'Access-Control-Request-Method': 'POST' }, 405],
      ...['GET', 'HEAD', 'PUT', 'DELETE', 'OPTIONS'].map((method) => [method, {}, 405] as const),
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

  test('is alone in beginning sessions', async () => {
    const set = jest.spyOn(relay.sessions, 'set');
    for (const path of ['/healthz', '/readyz', '/auth/session', '/nothing', '/'])
      for (const method of ['GET', 'HEAD'])
        expect((await call(relay.port, path, { method })).headers).not.toHaveProperty('set-cookie');
    expect(set).not.toHaveBeenCalled();
  });
});

describe('a message', () => {
  test('of a guest is streamed, and the bot service gets the user only from the session', async () => {
    const [one, two] = [await becomeGuest(), await becomeGuest()];
    const evil = {
      'X-User-Id': ['evil', 'evil-2'],
      'x-USER-id': 'evil-3',
      X_User_Id: 'evil',
      'X-User_Id': 'evil',
    };
    for (const { cookie, user } of [one, two, one]) {
      const asked = upstream.nextRequest();
      expect(await send(cookie, evil)).toMatchObject({ status: 200, body: 'data: 1\n\n' });
      const { all, headers } = (await asked) as RawRequest;
      expect(all('x-user-id')).toEqual([user]);
      expect(JSON.stringify(headers)).not.toContain('evil');
    }
    const told = relay.logs.filter(({ bot, status }) => bot !== undefined && status === 200);
    expect(told.slice(-3).map(({ userId }) => userId)).toEqual([one.user, two.user, one.user]);
  });

  test.each<[string, string]>([
    ['no cookie', ''],
    ['a cookie that somebody else has signed', signedCookie('x'.repeat(32), 'y'.repeat(40), 'guest')],
    ['a well signed cookie of no session', signedCookie('x'.repeat(32), CANARY.sessionSecret, 'guest')],
    ['a cookie that claims to be a guest', 'bot_relay_session=guest:00000000-0000-4000-8000-000000000000'],
    ['many cookies', Array.from({ length: 200 }, (_, n) => `c${n}=${n}`).join('; ')],
  ])('with %s is answered with 401, and begins no session', async (_what, cookie) => {
    const set = jest.spyOn(relay.sessions, 'set');
    const before = upstream.requests.length;
    const answer = await send(cookie, { Accept: 'text/html' });
    expectProblem(answer, 401, 'unauthenticated');
    for (const name of ['set-cookie', 'location', 'www-authenticate'])
      expect(answer.headers).not.toHaveProperty(name);
    expect(set).not.toHaveBeenCalled();
    expect(upstream.requests).toHaveLength(before);
  });
});
