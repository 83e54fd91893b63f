import { once } from 'node:events';
import { afterAll, afterEach, beforeAll, beforeEach, describe, expect, jest, test } from '@jest/globals';
import { memorySessionStore } from '../../src/authenticate/sessions/memory-session-store.ts';
import { extendedIdleLimit, startSession } from '../../src/authenticate/sessions/session.ts';
import type { RemovalListener } from '../../src/authenticate/sessions/session-store.ts';
import { watchSessions } from '../../src/authenticate/sessions/session-watch.ts';
import { Problem } from '../../src/errors.ts';
import { passwordLogin } from '../../src/routes/password.ts';
import { route } from '../../src/routes/route.ts';
import { type Answer, call, expectNobody, expectProblem, isSignedIn } from '../harness/clients/call.ts';
import { rawClient, rawMessage } from '../harness/clients/raw-client.ts';
import { NAVIGATION } from '../harness/relay/oidc-relay.ts';
import { BOT_PATH, CANARY, MESSAGE, startRelay, type TestRelay, USER } from '../harness/relay/relay.ts';
import { type RelayAndUpstream, startRelayAndUpstream } from '../harness/relay/relay-and-upstream.ts';
import { change, idOf, signedCookie, stored } from '../harness/relay/sessions.ts';
import { startTestApp } from '../harness/relay/test-app.ts';
import { wholeStream } from '../harness/service/raw-upstream.ts';

const MINUTE = 60_000;
const AWAY = new Problem('session_store_unavailable', 'Try again.', {
  ...{ retryAfter: 1, cause: new Error('the store is away') },
});

let pair: RelayAndUpstream;
let relay: TestRelay;
let cookie: string;
let id: string;
let requestsBefore: number;
beforeAll(async () => {
  // No metrics, as by default: they wrap the store of sessions.
  pair = await startRelayAndUpstream((socket) => socket.write(wholeStream('data: 1\n\n')), {
    METRICS_PORT: '',
  });
  relay = pair.relay;
});
beforeEach(async () => {
  cookie = await relay.signIn();
  id = idOf(cookie);
  requestsBefore = pair.upstream.requests.length;
});
afterEach(() => {
  jest.restoreAllMocks();
  jest.useRealTimers();
});
afterAll(() => pair.close());

const ask = (path: string, Cookie = cookie, method = 'GET') =>
  call(relay.port, path, { method, headers: { Cookie } });
const session = (Cookie = cookie) => ask('/auth/session', Cookie);
const logout = () => ask('/auth/logout', cookie, 'POST');
const held = () => stored(relay.parts.sessions, id);
const sent = () => pair.upstream.requests.length - requestsBefore;
const writesOf = ({ parts: { sessions } }: TestRelay = relay) => {
  const spies = (['set', 'extend', 'remove'] as const).map((name) => jest.spyOn(sessions, name));
  return () => spies.map((spy) => spy.mock.calls.length);
};

describe('a session', () => {
  test('is never extended by GET /auth/session, and once by a message, to its absolute limit at most', async () => {
    const now = Date.now();
    await change(relay.parts.sessions, id, {
      ...{ idleExpiresAt: now + MINUTE, absoluteExpiresAt: now + 2 * MINUTE },
    });
    const [before, writes] = [await held(), writesOf()];
    const first = await session();
    expect(await session()).toMatchObject({ status: 200, body: first.body });
    const idleExpiresAt = new Date(now + MINUTE).toISOString();
    expect(JSON.parse(first.body)).toMatchObject({ idleExpiresAt });
    expect([await held(), writes()]).toEqual([before, [0, 0, 0]]);
    const response = await relay.send(cookie, { headers: { 'X-Request-Id': 'let-go-0001' } });
    expect(await response.text()).toBe('data: 1\n\n');
    await relay.logLine(({ requestId }) => requestId === 'let-go-0001');
    // The relay's idle limit of 30 minutes is longer than the rest of this session. Its end writes nothing.
    expect(await held()).toEqual({ ...before, idleExpiresAt: before?.absoluteExpiresAt });
    expect([writes(), response.headers.getSetCookie()]).toEqual([[0, 1, 0], []]);
  });

  test.each(['idleExpiresAt', 'absoluteExpiresAt'])(
    'expires at %s, and no request restores it',
    async (limit) => {
      await change(relay.parts.sessions, id, { [limit]: Date.now() - 1 });
      const [before, writes] = [await held(), writesOf()];
      expectNobody(await session());
      expect((await relay.send(cookie)).status).toBe(401);
      expect([await held(), writes()]).toEqual([before, [0, 0, 0]]);
    },
  );

  test.each([
    ['the store is away', () => Promise.reject(AWAY), 503],
    ['it is removed', async () => 'removed' as const, 401],
    ['it is missing', async () => 'missing' as const, 401],
  ])('that cannot be extended, since %s, sends no message', async (_why, extend, status) => {
    jest.spyOn(relay.parts.sessions, 'extend').mockImplementation(extend);
    expect(await relay.send(cookie)).toMatchObject({ status });
    expect(sent()).toBe(0);
  });

  test('is not written by requests that the limit by session refuses', async () => {
    const limited = await startRelay(pair.upstream.url, { CLIENT_LIMIT_PER_SESSION: '1' });
    const headers = { Cookie: await limited.signIn(), 'Content-Type': 'application/json' };
    const writes = writesOf(limited);
    expect((await call(limited.port, '/auth/session', { headers })).status).toBe(200);
    const message = { method: 'POST', headers, body: MESSAGE };
    expectProblem(await call(limited.port, BOT_PATH, message), 429, 'too_many_attempts');
    expect(writes()).toEqual([0, 0, 0]);
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

describe('a request', () => {
  test('with a forged cookie has no session, and the store is not asked', async () => {
    const reads = jest.spyOn(relay.parts.sessions, 'get');
    for (const forged of [
      `bot_relay_session=${id}`,
      signedCookie(id, 'another-secret-another-secret-0123456789'),
      cookie.replace(id, 'x'.repeat(32)),
      `${cookie}; ${cookie}`,
      `a=b;\xa0${cookie}`,
    ]) {
      const answer = await session(forged);
      expectNobody(answer);
      expect(answer.headers).not.toHaveProperty('set-cookie');
    }
    expect(reads).not.toHaveBeenCalled();
  });

  test('whose session cannot be read from the store is answered with 503, never as anonymous', async () => {
    jest.spyOn(relay.parts.sessions, 'get').mockRejectedValue(AWAY);
    const answer = await session();
    expectProblem(answer, 503, 'session_store_unavailable');
    expect(answer.headers['retry-after']).toBe('1');
    expect(answer.body).not.toContain('away');
  });

  test('without a session is told that nobody is signed in, which is not stored', async () => {
    const answer = await call(relay.port, '/auth/session');
    expectNobody(answer);
    expect(answer.headers['cache-control']).toBe('no-store');
    expect(answer.headers).not.toHaveProperty('set-cookie');
  });

  test.each([BOT_PATH, '/auth/logout', '/auth/logout-all'])(
    'without a session is refused at %s in JSON, without a redirect or WWW-Authenticate, whatever is accepted',
    async (path) => {
      for (const accepts of [{ Accept: 'text/event-stream' }, { Accept: 'nonsense' }, NAVIGATION]) {
        const headers = { 'Content-Type': 'application/json', ...accepts };
        const answer = await call(relay.port, path, { method: 'POST', headers, body: MESSAGE });
        expectProblem(answer, 401, 'unauthenticated');
        for (const name of ['www-authenticate', 'location', 'set-cookie'])
          expect(answer.headers).not.toHaveProperty(name);
      }
      expect(sent()).toBe(0);
    },
  );
});

describe('a logout', () => {
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

  test('is not undone by a message that has read the session before', async () => {
    const extend = relay.parts.sessions.extend.bind(relay.parts.sessions);
    const loggedOut = Promise.withResolvers<void>();
    const extending = new Promise<void>((resolve) => {
      jest.spyOn(relay.parts.sessions, 'extend').mockImplementation(async (...args) => {
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
  ] as const)('at %s while the store fails is 503, and changes nothing', async (path, method) => {
    const fails = jest.spyOn(relay.parts.sessions, method).mockRejectedValue(AWAY);
    const answer = await ask(path, cookie, 'POST');
    expectProblem(answer, 503, 'session_store_unavailable');
    expect(answer.headers).not.toHaveProperty('set-cookie');
    fails.mockRestore();
    expect(isSignedIn(await session())).toBe(true);
  });
});

const GOOD = JSON.stringify({ username: USER.name, password: CANARY.password });
const login = (body = GOOD, Cookie = '') =>
  call(relay.port, '/auth/login', {
    method: 'POST',
    headers: { 'Content-Type': 'application/json', Cookie },
    body,
  });
const cookieOf = ({ headers }: Answer) => headers['set-cookie']?.[0]?.split(';')[0] as string;

describe('a sign-in with a password', () => {
  test('answers like /auth/session, with limits of 30 minutes and 8 hours, and writes its session once', async () => {
    const [before, writes] = [Date.now(), writesOf()];
    const answer = await login();
    const after = Date.now();
    expect([answer.status, writes()]).toEqual([200, [1, 0, 0]]);
    const shown = JSON.parse(answer.body);
    const time = expect.stringMatching(/^\d{4}-\d\d-\d\dT[\d:.]+Z$/);
    expect(shown).toEqual({ user: { id: 'ada', name: 'ada' }, idleExpiresAt: time, absoluteExpiresAt: time });
    const [idle, absolute] = [Date.parse(shown.idleExpiresAt), Date.parse(shown.absoluteExpiresAt)];
    expect(absolute - idle).toBe(8 * 60 * MINUTE - 30 * MINUTE);
    const begunAt = idle - 30 * MINUTE;
    expect([before <= begunAt, begunAt <= after]).toEqual([true, true]);
    expect((await session(cookieOf(answer))).body).toBe(answer.body);
  });

  test.each([
    '{"username":"ada","password":"wrong"}',
    '{"username":"eve","password":"wrong"}',
    '{"username":"__proto__","password":"wrong"}',
    '{"username":"ada"}',
    'null',
    '{"username":{"$ne":1},"password":{"$ne":1}}',
    `{"username":"ada","password":"${'x'.repeat(1025)}"}`,
  ])('answers %.45s with the same 401, without a cookie, and changes no session', async (body) => {
    const writes = writesOf();
    const answer = await login(body, cookie);
    const { detail } = expectProblem(answer, 401, 'invalid_credentials');
    expect(detail).toBe('The user name or the password is wrong.');
    for (const name of ['set-cookie', 'www-authenticate']) expect(answer.headers).not.toHaveProperty(name);
    expect(writes()).toEqual([0, 0, 0]);
    expect(isSignedIn(await session())).toBe(true);
  });

  test('refuses a body of more than 4 KiB', async () => {
    expectProblem(await login(JSON.stringify({ username: 'x'.repeat(4096) })), 413, 'body_too_large');
  });

  test.each(['remove', 'set'] as const)(
    'is 503 without a cookie if the store fails at %s',
    async (method) => {
      const set = jest.spyOn(relay.parts.sessions, 'set');
      jest.spyOn(relay.parts.sessions, method).mockRejectedValue(AWAY);
      const answer = await login(GOOD, cookie);
      expectProblem(answer, 503, 'session_store_unavailable');
      expect(answer.body).not.toContain('away');
      expect(answer.headers).not.toHaveProperty('set-cookie');
      expect(set).toHaveBeenCalledTimes(method === 'set' ? 1 : 0);
    },
  );

  test('stores nothing and sets no cookie if all sessions of the user end meanwhile', async () => {
    const { startTime } = relay.parts.sessions;
    jest.spyOn(relay.parts.sessions, 'startTime').mockImplementationOnce(async (owner) => {
      const time = await startTime(owner);
      await relay.parts.sessions.removeUser(owner.userId);
      return time;
    });
    const answer = await login();
    expectProblem(answer, 400, 'sign_in_failed');
    expect(answer.headers).not.toHaveProperty('set-cookie');
    expect(await relay.parts.sessions.removeUser(USER.name)).toBe(0);
  });

  test('gives another id than the session before, which it ends', async () => {
    const after = cookieOf(await login(GOOD, cookie));
    expect(idOf(after)).not.toBe(id);
    expect(await held()).toBeNull();
    expectNobody(await session());
    expect(isSignedIn(await session(after))).toBe(true);
  });

  test('never uses an id of the request, even a signed one', async () => {
    const planted = signedCookie('planted-id-planted-id-planted-id');
    expect(idOf(cookieOf(await login(GOOD, planted)))).not.toContain('planted');
    expectNobody(await session(planted));
  });

  test('does not wait any more when its client leaves', async () => {
    const [began, ended] = [Promise.withResolvers<void>(), Promise.withResolvers<void>()];
    const post = passwordLogin({
      limitByAddress: async () => {},
      checkOrigin: () => {},
      body: { maxBytes: 4096, timeoutMs: 60_000 },
      attempts: {
        refuse: async () => {},
        async attempt(_by, _check, signal) {
          began.resolve();
          await once(signal, 'abort');
          ended.resolve();
          throw signal.reason;
        },
      },
      users: { has: () => true, verify: async () => undefined },
      sessions: { begin: () => Promise.reject(new Error('no session begins')) },
    });
    const stage = await startTestApp((app) => route(app, '/auth/login', { post }));
    const client = rawClient(stage.port, rawMessage({ path: '/auth/login', body: GOOD }));
    await began.promise;
    client.socket.destroy();
    await ended.promise;
    await stage.close();
  });
});

describe('the watch of a session', () => {
  const LIMITS = { idleMs: 4_000, absoluteMs: 60_000 };

  /** A session in a store, and its watch. */
  async function start() {
    jest.useFakeTimers();
    const sessions = memorySessionStore();
    const key = 'the-key';
    const own = { ...startSession({ id: 'ada', name: 'Ada' }, LIMITS, Date.now()), key };
    await sessions.set(key, own);
    // No removal is heard.
    const listened = jest.spyOn(sessions, 'listen').mockReturnValue();
    const endMessages = jest.fn();
    const watch = watchSessions({ sessions, limits: LIMITS, endMessages });
    return {
      ...{ sessions, session: own, endMessages, watch },
      listener: listened.mock.calls[0]?.[0] as RemovalListener,
      silent: () => watch.add({ session: own, bytes: () => 0 }),
      expectEnded: () =>
        expect(endMessages).toHaveBeenCalledWith(key, expect.objectContaining({ code: 'session_ended' })),
    };
  }
  const passed = (ms: number) => jest.advanceTimersByTimeAsync(ms);

  test('extends it for a message that carries bytes, while silent streams come and go', async () => {
    const { session, endMessages, watch, silent } = await start();
    let bytes = 0;
    watch.add({ session, bytes: () => bytes });
    for (let n = 0; n < 100; n += 1) {
      bytes += 1;
      const leave = silent();
      await passed(100);
      leave();
    }
    expect(endMessages).not.toHaveBeenCalled();
  });

  test('ends a stream that does not use it at its idle limit', async () => {
    const { endMessages, silent, expectEnded } = await start();
    silent();
    await passed(LIMITS.idleMs - 600);
    expect(endMessages).not.toHaveBeenCalled();
    await passed(1_200);
    expectEnded();
  });

  test('asks for it again if it was read before removals may have been missed', async () => {
    const { sessions, session, watch, listener, expectEnded } = await start();
    const missedRemovals = watch.missedRemovals();
    await sessions.remove(session.key);
    listener.missed();
    watch.add({ session, missedRemovals, bytes: () => 0 });
    await passed(600);
    expectEnded();
  });

  test('asks for it later if it was extended', async () => {
    const { sessions, session, endMessages, watch, silent } = await start();
    const state = jest.spyOn(sessions, 'state');
    silent();
    // Another message of the session has extended it.
    const extended = { ...session, idleExpiresAt: session.idleExpiresAt + 5_000 };
    watch.add({ session: extended, bytes: () => 0 });
    await passed(LIMITS.idleMs + 4_000);
    expect(state).not.toHaveBeenCalled();
    expect(endMessages).not.toHaveBeenCalled();
  });

  test('leaves it alone while its store still has it, if the clock of this instance is fast', async () => {
    const { session, sessions, endMessages, silent, expectEnded } = await start();
    const state = jest.spyOn(sessions, 'state').mockResolvedValue(session.idleExpiresAt);
    silent();
    await passed(LIMITS.idleMs + 5_000);
    expect(endMessages).not.toHaveBeenCalled();
    // It is not asked for at each tick.
    expect(state.mock.calls.length).toBeLessThanOrEqual(6);
    state.mockResolvedValue('missing');
    await passed(2_000);
    expectEnded();
  });

  test('has one timer for all sessions, which ends when none has a message and begins again with the next', async () => {
    const { silent } = await start();
    const others = jest.getTimerCount();
    const leaves = [silent(), silent()];
    expect(jest.getTimerCount()).toBe(others + 1);
    for (const leave of leaves) leave();
    await passed(600);
    expect(jest.getTimerCount()).toBe(others);
    silent();
    expect(jest.getTimerCount()).toBe(others + 1);
  });
});
