import { afterAll, afterEach, beforeAll, beforeEach, describe, expect, jest, test } from '@jest/globals';
import { extendedIdleLimit, sessionKey, startSession } from '../../src/authenticate/sessions/session.ts';
import { Problem } from '../../src/errors.ts';
import { call, expectNobody, expectProblem, isSignedIn, parseAnswer } from '../harness/clients/call.ts';
import { rawClient, rawMessage } from '../harness/clients/raw-client.ts';
import { NAVIGATION } from '../harness/relay/oidc-relay.ts';
import { BOT_PATH, MESSAGE, startRelay, type TestRelay } from '../harness/relay/relay.ts';
import { type RelayAndUpstream, startRelayAndUpstream } from '../harness/relay/relay-and-upstream.ts';
import { change, idOf, signedCookie, stored } from '../harness/relay/sessions.ts';
import { chunk, LAST_CHUNK, STREAM_HEAD, wholeStream } from '../harness/service/raw-upstream.ts';

const MINUTE = 60_000;
const AWAY = new Problem('session_store_unavailable', 'Try again.', {
  ...{ retryAfter: 1, cause: new Error('the store is away') },
});

let pair: RelayAndUpstream;
let relay: TestRelay;
/** What the bot service answers. */
let service: string | Buffer;
let cookie: string;
let id: string;
let requestsBefore: number;
beforeAll(async () => {
  pair = await startRelayAndUpstream((socket) => socket.write(service));
  relay = pair.relay;
});
beforeEach(async () => {
  service = wholeStream('data: 1\n\n');
  cookie = await relay.signIn();
  id = idOf(cookie);
  requestsBefore = pair.upstream.requests.length;
});
afterEach(() => void jest.restoreAllMocks());
afterAll(() => pair.close());

const ask = (path: string, Cookie = cookie, method = 'GET') =>
  call(relay.port, path, { method, headers: { Cookie } });
const session = (Cookie = cookie) => ask('/auth/session', Cookie);
const logout = () => ask('/auth/logout', cookie, 'POST');
const held = () => stored(relay.sessions, id);
const sent = () => pair.upstream.requests.length - requestsBefore;
const spies = (...names: ('set' | 'extend' | 'remove')[]) =>
  names.map((name) => jest.spyOn(relay.sessions, name));
const shorten = () =>
  change(relay.sessions, id, {
    ...{ idleExpiresAt: Date.now() + MINUTE, absoluteExpiresAt: Date.now() + 2 * MINUTE },
  });

describe('a session', () => {
  test('is never extended by GET /auth/session, which shows its limits', async () => {
    await shorten();
    const writes = spies('extend', 'set');
    const before = await held();
    const first = await session();
    expect(await session()).toMatchObject({ status: 200, body: first.body });
    expect(await held()).toEqual(before);
    for (const write of writes) expect(write).not.toHaveBeenCalled();
    const idleExpiresAt = new Date(before?.idleExpiresAt as number).toISOString();
    expect(JSON.parse(first.body)).toMatchObject({ idleExpiresAt });
  });

  test('is extended once by a message, to its absolute limit at most, and not written at its end', async () => {
    await shorten();
    const before = await held();
    const [extend, set] = spies('extend', 'set');
    const response = await relay.send(cookie, { headers: { 'X-Request-Id': 'let-go-0001' } });
    expect(await response.text()).toBe('data: 1\n\n');
    await relay.logLine(({ requestId }) => requestId === 'let-go-0001');
    // The relay's idle limit of 30 minutes is longer than the rest of this session.
    expect(await held()).toEqual({ ...before, idleExpiresAt: before?.absoluteExpiresAt });
    expect([extend?.mock.calls.length, set?.mock.calls.length]).toEqual([1, 0]);
    expect(response.headers.getSetCookie()).toEqual([]);
  });

  test.each(['idleExpiresAt', 'absoluteExpiresAt'])(
    'expires at %s, and no request restores it',
    async (limit) => {
      await change(relay.sessions, id, { [limit]: Date.now() - 1 });
      const before = await held();
      const writes = spies('set', 'extend', 'remove');
      expectNobody(await session());
      expect((await relay.send(cookie)).status).toBe(401);
      for (const write of writes) expect(write).not.toHaveBeenCalled();
      expect(await held()).toEqual(before);
    },
  );

  test.each([
    ['the store is away', () => Promise.reject(AWAY), 503],
    ['it is removed', async () => 'removed' as const, 401],
    ['it is missing', async () => 'missing' as const, 401],
  ])('that cannot be extended, since %s, sends no message', async (_why, extend, status) => {
    jest.spyOn(relay.sessions, 'extend').mockImplementation(extend);
    expect(await relay.send(cookie)).toMatchObject({ status });
    expect(sent()).toBe(0);
  });

  test('is not written by requests that the limit by session refuses', async () => {
    const limited = await startRelay(pair.upstream.url, { CLIENT_LIMIT_PER_SESSION: '1' });
    const headers = { Cookie: await limited.signIn(), 'Content-Type': 'application/json' };
    const writes = (['set', 'extend', 'remove'] as const).map((one) => jest.spyOn(limited.sessions, one));
    expect((await call(limited.port, '/auth/session', { headers })).status).toBe(200);
    expectProblem(await call(limited.port, '/auth/session', { headers }), 429, 'too_many_attempts');
    const message = { method: 'POST', headers, body: '{}' };
    expectProblem(await call(limited.port, BOT_PATH, message), 429, 'too_many_attempts');
    for (const write of writes) expect(write).not.toHaveBeenCalled();
    await limited.close();
  });

  test('begins with the given durations and is extended from the time of use, never beyond the absolute limit', () => {
    const user = { id: 'ada', name: 'ada' };
    const limits = { idleMs: 10, absoluteMs: 30 };
    const started = startSession(user, limits, 1000);
    expect(started).toEqual({ user, startedAt: 1000, idleExpiresAt: 1010, absoluteExpiresAt: 1030 });
    expect(startSession(user, { idleMs: 50, absoluteMs: 30 }, 1000).idleExpiresAt).toBe(1030);
    const extended = [1005, 1020, 1025].map((now) => extendedIdleLimit(started, limits, now));
    expect(extended).toEqual([1015, 1030, 1030]);
  });
});

describe('a session cookie', () => {
  test('that is valid is looked up once in the store', async () => {
    const reads = jest.spyOn(relay.sessions, 'get');
    expect(isSignedIn(await session(`a=b; ${cookie}; c=d`))).toBe(true);
    expect(reads.mock.calls).toEqual([[sessionKey(id)]]);
  });

  test.each<[string, (good: string) => string]>([
    ['that is not signed', () => `bot_relay_session=${id}`],
    ['with another signature', (good) => good.replace(/.$/, (last) => (last === 'A' ? 'B' : 'A'))],
    ['signed by somebody else', () => signedCookie(id, 'another-secret-another-secret-0123456789')],
    ['with the signature of another id', (good) => good.replace(id, 'x'.repeat(32))],
    ['that is sent twice', (good) => `${good}; ${good}`],
    ['whose name begins with the byte 0xA0', (good) => `a=b;\xa0${good}`],
    ['whose name ends with a tab', (good) => good.replace('=', '\t=')],
  ])('%s opens no session, and the store is not asked', async (_what, forge) => {
    const reads = jest.spyOn(relay.sessions, 'get');
    const answer = await session(forge(cookie));
    expectNobody(answer);
    expect(answer.headers).not.toHaveProperty('set-cookie');
    expect(reads).not.toHaveBeenCalled();
  });

  test('in each of two Cookie headers opens no session, and the store is not asked', async () => {
    const reads = jest.spyOn(relay.sessions, 'get');
    const headers = [`Cookie: ${cookie}`, 'Connection: close'];
    const client = rawClient(relay.port, rawMessage({ cookie, headers }));
    await client.closed;
    expectProblem(parseAnswer(client.text()), 401, 'unauthenticated');
    expect(reads).not.toHaveBeenCalled();
    expect(sent()).toBe(0);
  });

  test('that is signed but unknown to the store opens no session', async () => {
    const answer = await session(signedCookie('z'.repeat(32)));
    expectNobody(answer);
    expect(answer.headers).not.toHaveProperty('set-cookie');
  });

  test('whose session cannot be read from the store is answered with 503, never as anonymous', async () => {
    jest.spyOn(relay.sessions, 'get').mockRejectedValue(AWAY);
    const answer = await session();
    expectProblem(answer, 503, 'session_store_unavailable');
    expect(answer.headers['retry-after']).toBe('1');
    expect(answer.body).not.toContain('away');
  });
});

describe('without a session', () => {
  test('GET /auth/session says that nobody is signed in, and is not stored', async () => {
    const answer = await call(relay.port, '/auth/session');
    expectNobody(answer);
    expect(answer.headers['cache-control']).toBe('no-store');
    expect(answer.headers).not.toHaveProperty('set-cookie');
  });

  test.each([
    ['POST', BOT_PATH],
    ['POST', '/auth/logout'],
    ['POST', '/auth/logout-all'],
  ])(
    '%s %s is refused in JSON, without a redirect or WWW-Authenticate, whatever is accepted',
    async (method, path) => {
      for (const Accept of ['text/event-stream', '*/*', 'text/html', 'nonsense', '']) {
        for (const more of [{ 'X-Requested-With': 'XMLHttpRequest' }, NAVIGATION]) {
          const headers = { ...more, Accept, 'Content-Type': 'application/json' };
          const answer = await call(relay.port, path, {
            method,
            headers,
            ...(method === 'POST' && { body: MESSAGE }),
          });
          expectProblem(answer, 401, 'unauthenticated');
          for (const name of ['www-authenticate', 'location', 'set-cookie'])
            expect(answer.headers).not.toHaveProperty(name);
        }
      }
      expect(sent()).toBe(0);
    },
  );
});

describe('logout', () => {
  async function expectEnded() {
    expect(await held()).toBeNull();
    expectNobody(await session());
  }

  test('ends the session and removes the cookie; GET does not', async () => {
    expectProblem(await ask('/auth/logout'), 405, 'method_not_allowed');
    expect(isSignedIn(await session())).toBe(true);
    const answer = await logout();
    expect([answer.status, answer.body]).toEqual([204, '']);
    expect(answer.headers['set-cookie']?.[0]).toMatch(/^bot_relay_session=;.*Expires=Thu, 01 Jan 1970/);
    await expectEnded();
    expectProblem(await logout(), 401, 'unauthenticated');
  });

  test('during a stream is not undone by the end of the stream', async () => {
    service = STREAM_HEAD;
    const client = pair.ask({ cookie, headers: ['X-Request-Id: open-stream-1'] });
    await client.waitFor('\r\n\r\n');
    expect(await logout()).toMatchObject({ status: 204 });
    pair.upstream.sockets.at(-1)?.write(Buffer.concat([chunk('data: 1\n\n'), Buffer.from(LAST_CHUNK)]));
    await relay.logLine(({ requestId }) => requestId === 'open-stream-1');
    await expectEnded();
  });

  test('is not undone by a message that has read the session before', async () => {
    const extend = relay.sessions.extend.bind(relay.sessions);
    const loggedOut = Promise.withResolvers<void>();
    const extending = new Promise<void>((resolve) => {
      jest.spyOn(relay.sessions, 'extend').mockImplementation(async (...args) => {
        resolve();
        await loggedOut.promise;
        return extend(...args);
      });
    });
    const client = pair.ask({ cookie });
    await extending;
    expect(await logout()).toMatchObject({ status: 204 });
    loggedOut.resolve();
    await client.waitFor('\r\n\r\n');
    expect(client.text()).toMatch(/^HTTP\/1.1 401 /);
    expect(sent()).toBe(0);
    await expectEnded();
  });

  test.each([
    ['/auth/logout', 'remove'],
    ['/auth/logout-all', 'removeUser'],
  ] as const)('while the store fails is 503, and asks it for nothing more: %s', async (path, method) => {
    const writes = spies('extend', 'set');
    jest.spyOn(relay.sessions, method).mockRejectedValue(AWAY);
    const answer = await ask(path, cookie, 'POST');
    expectProblem(answer, 503, 'session_store_unavailable');
    expect(answer.headers).not.toHaveProperty('set-cookie');
    for (const write of writes) expect(write).not.toHaveBeenCalled();
    jest.restoreAllMocks();
    expect(isSignedIn(await session())).toBe(true);
  });
});
