import { afterEach, describe, expect, jest, test } from '@jest/globals';
import { type Answer, type Call, call, expectProblem } from '../harness/clients/call.ts';
import { rawClient, rawMessage } from '../harness/clients/raw-client.ts';
import { BOT_PATH, CANARY, MESSAGE, startRelay, type TestRelay } from '../harness/relay/relay.ts';
import { until } from '../harness/relay/relay-and-upstream.ts';
import { change, idOf, signedCookie, stored } from '../harness/relay/sessions.ts';
import {
  LAST_CHUNK,
  type RawRequest,
  type RawUpstream,
  startRawUpstream,
  wholeStream,
} from '../harness/service/raw-upstream.ts';

const GUEST = /^guest:[0-9a-f]{8}-[0-9a-f]{4}-4[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}$/;
const MINUTE = 60_000;

let upstream: RawUpstream;
let relay: TestRelay;
afterEach(async () => {
  jest.restoreAllMocks();
  await relay.close();
  await upstream.close();
});

async function start(environment: Record<string, string> = {}) {
  upstream = await startRawUpstream((socket) => socket.write(wholeStream('data: 1\n\n')));
  relay = await startRelay(upstream.url, { AUTH_MODE: 'guest', ...environment });
}

const post = (path: string, cookie = '', { headers, ...more }: Call = {}) =>
  call(relay.port, path, {
    method: 'POST',
    headers: { ...(cookie && { Cookie: cookie }), ...headers },
    ...more,
  });
const get = (path: string, cookie = '') => call(relay.port, path, { headers: { Cookie: cookie } });
const send = (cookie: string, headers: Call['headers'] = {}) =>
  post(BOT_PATH, cookie, { headers: { 'Content-Type': 'application/json', ...headers }, body: MESSAGE });

const cookieIn = ({ headers }: Answer) => (headers['set-cookie']?.[0] ?? '').split(';', 1)[0] as string;
const userIn = ({ body }: Answer) => (JSON.parse(body) as { user: { id: string } }).user.id;

/** A new guest. */
async function becomeGuest(options: Call = {}) {
  const answer = await post('/auth/guest', '', options);
  expect(answer.status).toBe(200);
  return { answer, cookie: cookieIn(answer), user: userIn(answer) };
}

describe('POST /auth/guest', () => {
  test('begins an ordinary session of a new user', async () => {
    await start();
    const { answer, cookie, user } = await becomeGuest();
    expect(user).toMatch(GUEST);
    expect(JSON.parse(answer.body)).toEqual({
      user: { id: user, name: 'Guest' },
      idleExpiresAt: expect.stringMatching(/^\d{4}-\d\d-\d\dT.*Z$/),
      absoluteExpiresAt: expect.stringMatching(/^\d{4}-\d\d-\d\dT.*Z$/),
    });
    expect(answer.headers['set-cookie']).toEqual([
      expect.stringMatching(/^bot_relay_session=[\w-]{32}\.[\w-]{43}; Path=\/; HttpOnly; SameSite=Strict$/),
    ]);
    expect(answer.headers['content-type']).toMatch(/^application\/json/);
    expect(answer.headers['cache-control']).toBe('no-store');
    expect((await get('/auth/session', cookie)).body).toBe(answer.body);
    expect((await becomeGuest()).user).not.toBe(user);
    expect(await relay.logLine(({ route }) => route === '/auth/guest')).toMatchObject({ userId: user });
  });

  test('sets a Secure cookie only if browsers see the relay over https', async () => {
    await start({ PUBLIC_URL: 'https://app.example.com' });
    const { answer } = await becomeGuest();
    expect(answer.headers['set-cookie']).toEqual([
      expect.stringMatching(/^__Host-bot_relay_session=[^;]+; Path=\/; HttpOnly; Secure; SameSite=Strict$/),
    ]);
  });

  test('keeps and extends the session of a guest who has one, and does not count it', async () => {
    await start({ GUESTS_PER_ADDRESS: '1' });
    const { cookie, user } = await becomeGuest();
    const now = Date.now();
    const limits = { idleExpiresAt: now + MINUTE, absoluteExpiresAt: now + 60 * MINUTE };
    await change(relay.sessions, idOf(cookie), limits);
    for (let n = 0; n < 3; n += 1) {
      const again = await post('/auth/guest', cookie);
      expect([again.status, userIn(again)]).toEqual([200, user]);
      expect(again.headers).not.toHaveProperty('set-cookie');
      const session = await stored(relay.sessions, idOf(cookie));
      // To the relay's idle limit of 30 minutes.
      expect(session?.idleExpiresAt).toBeGreaterThanOrEqual(now + 30 * MINUTE);
      expect(session?.absoluteExpiresAt).toBe(limits.absoluteExpiresAt);
      expect(JSON.parse(again.body)).toMatchObject({
        idleExpiresAt: new Date(session?.idleExpiresAt ?? 0).toISOString(),
        absoluteExpiresAt: new Date(limits.absoluteExpiresAt).toISOString(),
      });
    }
    expectProblem(await post('/auth/guest'), 429, 'too_many_attempts');
  });

  test('never extends a session beyond its absolute limit', async () => {
    await start();
    const { cookie, user } = await becomeGuest();
    const absoluteExpiresAt = Date.now() + 5 * MINUTE;
    await change(relay.sessions, idOf(cookie), { idleExpiresAt: Date.now() + MINUTE, absoluteExpiresAt });
    const again = await post('/auth/guest', cookie);
    const limit = new Date(absoluteExpiresAt).toISOString();
    expect(JSON.parse(again.body)).toEqual({
      user: { id: user, name: 'Guest' },
      idleExpiresAt: limit,
      absoluteExpiresAt: limit,
    });
  });

  test.each([
    ['idle', { idleExpiresAt: Date.now() - 1 }],
    ['absolute', { absoluteExpiresAt: Date.now() - 1 }],
  ])('after the %s limit begins another session of another guest', async (_which, past) => {
    await start();
    const { cookie, user } = await becomeGuest();
    await change(relay.sessions, idOf(cookie), past);
    const next = await post('/auth/guest', cookie);
    expect(userIn(next)).toMatch(GUEST);
    expect(userIn(next)).not.toBe(user);
    expect(idOf(cookieIn(next))).not.toBe(idOf(cookie));
    expect((await get('/auth/session', cookie)).status).toBe(401);
    expect(await stored(relay.sessions, idOf(cookie))).toBeNull();
  });

  test.each(['/auth/logout', '/auth/logout-all'])(
    'after %s begins another session of another guest',
    async (path) => {
      await start();
      const { cookie, user } = await becomeGuest();
      const other = await becomeGuest();
      const out = await post(path, cookie);
      expect([out.status, out.body]).toEqual([204, '']);
      expect(out.headers['set-cookie']?.[0]).toMatch(/^bot_relay_session=;.*Expires=Thu, 01 Jan 1970/);
      expect((await get('/auth/session', cookie)).status).toBe(401);
      expect((await send(cookie)).status).toBe(401);
      const next = await post('/auth/guest', cookie);
      expect([next.status, userIn(next) === user, idOf(cookieIn(next)) === idOf(cookie)]).toEqual([
        200,
        false,
        false,
      ]);
      // Two guests are two users.
      expect(userIn(await get('/auth/session', other.cookie))).toBe(other.user);
      expect((await send(other.cookie)).status).toBe(200);
    },
  );

  test('does not restore a session that is logged out during the request', async () => {
    await start();
    const { cookie, user } = await becomeGuest();
    const { sessions } = relay;
    const extend = sessions.extend.bind(sessions);
    jest.spyOn(sessions, 'extend').mockImplementation(async (...args) => {
      await post('/auth/logout', cookie);
      return extend(...args);
    });
    // As after the logout: another session of another guest.
    const next = await post('/auth/guest', cookie);
    expect([next.status, userIn(next) === user, idOf(cookieIn(next)) === idOf(cookie)]).toEqual([
      200,
      false,
      false,
    ]);
    expect((await get('/auth/session', cookie)).status).toBe(401);
  });

  test('never accepts a session id that was chosen by somebody else', async () => {
    await start();
    const fixed = signedCookie('x'.repeat(32), CANARY.sessionSecret, 'guest');
    for (const cookie of ['bot_relay_session=fixed', `bot_relay_session=${'x'.repeat(32)}`, fixed]) {
      const answer = await post('/auth/guest', cookie);
      expect(answer.status).toBe(200);
      expect(idOf(cookieIn(answer))).not.toContain('xxxx');
    }
  });

  test.each<[string, Call]>([
    ['no body', {}],
    ['a body of JSON', { headers: { 'Content-Type': 'application/json' }, body: '{"user":{"id":"admin"}}' }],
    ['a form', { headers: { 'Content-Type': 'application/x-www-form-urlencoded' }, body: 'id=admin' }],
    ['a body that is not JSON', { headers: { 'Content-Type': 'application/json' }, body: '{' }],
    ['a query', {}],
  ])('ignores %s in the request', async (what, options) => {
    await start();
    const answer = await post(
      `/auth/guest${what === 'a query' ? '?id=admin&user[id]=admin' : ''}`,
      '',
      options,
    );
    expect([answer.status, userIn(answer)]).toEqual([200, expect.stringMatching(GUEST)]);
  });

  test('does not read a large body, and answers before its end', async () => {
    await start();
    const large = await post('/auth/guest', '', { body: Buffer.alloc(20 * 1024 * 1024, 'x') });
    expect(large.status).toBe(200);
    const head = ['Host: app.example.com', 'Transfer-Encoding: chunked', '', '10000', 'x'];
    const client = rawClient(relay.port, ['POST /auth/guest HTTP/1.1', ...head].join('\r\n'));
    await client.waitFor('"absoluteExpiresAt"');
    expect(client.text()).toMatch(/^HTTP\/1\.1 200 /);
    client.socket.destroy();
  });

  test.each(['GET', 'HEAD', 'PUT', 'DELETE', 'OPTIONS'])('answers 405 to %s', async (method) => {
    await start();
    const answer = await call(relay.port, '/auth/guest', { method });
    expect([answer.status, answer.headers.allow]).toEqual([405, 'POST']);
    expect(answer.headers).not.toHaveProperty('set-cookie');
  });
});

describe('a guest session', () => {
  const OWN = 'http://app.example.com';
  const ALLOWED = 'https://partner.example.org';
  const SITES = ['same-origin', 'same-site', 'cross-site', 'none', undefined, 'sideways', ''];
  const ORIGINS = [
    ...[OWN, ALLOWED, 'https://other.example.net', 'null', 'https://app.example.evil', `${OWN}/`],
    ...['https://app.example.com.evil.net', 'https://app.example.com', '', undefined],
  ];
  /** The documented rule. */
  const passes = (site?: string, origin?: string) =>
    ['same-origin', 'none'].includes(site ?? 'missing') ||
    origin === OWN ||
    origin === ALLOWED ||
    (site === undefined && origin === undefined);

  test('is given to the relay’s own page, to an allowed page and to clients that are no browser', async () => {
    await start({ ALLOWED_ORIGINS: ALLOWED });
    for (const site of SITES) {
      for (const origin of ORIGINS) {
        const headers = {
          ...(site !== undefined && { 'Sec-Fetch-Site': site }),
          ...(origin !== undefined && { Origin: origin }),
        };
        const answer = await post('/auth/guest', '', { headers });
        expect({ site, origin, status: answer.status }).toEqual({
          site,
          origin,
          status: passes(site, origin) ? 200 : 403,
        });
        if (!passes(site, origin)) {
          expectProblem(answer, 403, 'cross_site_request');
          expect(answer.headers).not.toHaveProperty('set-cookie');
        }
        const reads = answer.headers['access-control-allow-origin'];
        expect(reads).toBe(origin === ALLOWED ? ALLOWED : undefined);
      }
    }
  });

  test('is not begun by a preflight, which sets no cookie', async () => {
    await start({ ALLOWED_ORIGINS: ALLOWED, GUESTS_PER_ADDRESS: '1' });
    const set = jest.spyOn(relay.sessions, 'set');
    for (const origin of [ALLOWED, ALLOWED, 'https://other.example.net']) {
      const answer = await call(relay.port, '/auth/guest', {
        method: 'OPTIONS',
        headers: { Origin: origin, 'Access-Control-Request-Method': 'POST' },
      });
      expect(answer.status).toBe(origin === ALLOWED ? 204 : 405);
      expect(answer.headers['access-control-allow-credentials']).toBe(
        origin === ALLOWED ? 'true' : undefined,
      );
      expect(answer.headers).not.toHaveProperty('set-cookie');
    }
    expect(set).not.toHaveBeenCalled();
    await becomeGuest();
  });
});

describe('a message', () => {
  test('of a guest is streamed, and the bot service gets the user only from the session', async () => {
    await start({ USER_HEADER: 'X-User-Id' });
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
    const told = relay.logs.filter(({ bot }) => bot !== undefined).map(({ userId }) => userId);
    expect(told).toEqual([one.user, two.user, one.user]);
  });

  test.each<[string, string]>([
    ['no cookie', ''],
    ['a cookie that is not signed', `bot_relay_session=${'x'.repeat(32)}`],
    ['a cookie that somebody else has signed', signedCookie('x'.repeat(32), 'y'.repeat(40), 'guest')],
    ['a well signed cookie of no session', signedCookie('x'.repeat(32), CANARY.sessionSecret, 'guest')],
    ['an empty cookie', 'bot_relay_session='],
    ['a cookie that claims to be a guest', 'bot_relay_session=guest:00000000-0000-4000-8000-000000000000'],
    ['two cookies', 'bot_relay_session=a; bot_relay_session=b'],
    ['a long cookie', `bot_relay_session=${'x'.repeat(4000)}`],
    ['many cookies', Array.from({ length: 200 }, (_, n) => `c${n}=${n}`).join('; ')],
  ])('with %s is answered with 401, begins no session and sets no cookie', async (_what, cookie) => {
    await start();
    const set = jest.spyOn(relay.sessions, 'set');
    for (const headers of [{}, { Accept: 'text/event-stream' }, { Accept: 'text/html' }]) {
      const answer = await send(cookie, headers);
      expectProblem(answer, 401, 'unauthenticated');
      for (const name of ['set-cookie', 'location', 'www-authenticate']) {
        expect(answer.headers).not.toHaveProperty(name);
      }
    }
    expect(set).not.toHaveBeenCalled();
    expect(upstream.sockets).toHaveLength(0);
  });
});

test('only POST /auth/guest begins a session of a guest', async () => {
  await start();
  const set = jest.spyOn(relay.sessions, 'set');
  for (const path of ['/healthz', '/readyz', '/auth/session', '/nothing', '/auth/guest', '/']) {
    for (const method of ['GET', 'HEAD']) {
      const answer = await call(relay.port, path, { method });
      expect(answer.headers).not.toHaveProperty('set-cookie');
    }
  }
  expect(set).not.toHaveBeenCalled();
  await becomeGuest();
  expect(set).toHaveBeenCalledTimes(1);
});

describe('only the sign-in routes of AUTH_MODE exist:', () => {
  const MODES: [string, Record<string, string>, string[]][] = [
    ['guest', {}, ['POST /auth/guest']],
    ['password', {}, ['POST /auth/login']],
    [
      'oidc',
      {
        OIDC_ISSUER: 'http://127.0.0.1:9',
        OIDC_CLIENT_ID: 'bot-relay',
        OIDC_CLIENT_SECRET: 'canary-oidc-client-secret',
      },
      ['GET /auth/login', 'GET /auth/callback', 'POST /auth/backchannel-logout'],
    ],
  ];
  const ALL = [...MODES.flatMap(([, , ways]) => ways)];

  test.each(MODES)('%s', async (mode, environment, ways) => {
    await start({ AUTH_MODE: mode, ...environment });
    for (const way of ALL) {
      const [method = '', path = ''] = way.split(' ');
      const { status } = await call(relay.port, path, { method });
      const elsewhere = ways.some((one) => one.endsWith(` ${path}`)) ? 405 : 404;
      if (ways.includes(way)) expect([way, 404, 405]).not.toContain(status);
      else expect([way, status]).toEqual([way, elsewhere]);
    }
  });
});

describe('the stream of a guest', () => {
  const ENDED = /event: error\ndata: .*"code":"session_ended"/;
  const begin = async (cookie: string) => {
    const client = rawClient(relay.port, rawMessage({ cookie, headers: ['Connection: close'] }));
    await client.waitFor('data: begun\n\n');
    return client;
  };
  async function startStreaming(limits = {}) {
    upstream = await startRawUpstream((socket) =>
      socket.write(wholeStream('data: begun\n\n').subarray(0, -LAST_CHUNK.length)),
    );
    relay = await startRelay(upstream.url, { AUTH_MODE: 'guest' }, limits);
  }

  test.each(['/auth/logout', '/auth/logout-all'])(
    'ends with %s, and streams of other guests go on',
    async (path) => {
      await startStreaming();
      const [mine, other] = [await becomeGuest(), await becomeGuest()];
      const [stream, others] = [await begin(mine.cookie), await begin(other.cookie)];
      expect((await post(path, mine.cookie)).status).toBe(204);
      await stream.closed;
      expect(stream.text()).toMatch(ENDED);
      await until(() => relay.open.count() === 1);
      upstream.sockets.at(-1)?.write(LAST_CHUNK);
      await others.closed;
      expect(others.text()).not.toMatch(ENDED);
    },
  );

  test.each([{ idleMs: 2000 }, { absoluteMs: 2000 }])('ends with its session at %j', async (limits) => {
    await startStreaming(limits);
    const stream = await begin((await becomeGuest()).cookie);
    await stream.closed;
    expect(stream.text()).toMatch(ENDED);
    await until(() => relay.open.count() === 0);
  });
});
