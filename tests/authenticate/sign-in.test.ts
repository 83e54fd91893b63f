import { afterAll, afterEach, beforeAll, describe, expect, jest, test } from '@jest/globals';
import { memorySessionStore } from '../../src/authenticate/sessions/memory-session-store.ts';
import { sessionCookie } from '../../src/authenticate/sessions/session-cookie.ts';
import { openSessions } from '../../src/authenticate/sessions/sessions.ts';
import { Problem } from '../../src/errors.ts';
import { createLogger } from '../../src/logger.ts';
import { loginAttempts } from '../../src/pace/login-attempts.ts';
import { memoryAttempts } from '../../src/pace/memory-attempts.ts';
import { memoryCounts, requestLimits } from '../../src/pace/request-limits.ts';
import { passwordLogin } from '../../src/routes/password.ts';
import { route } from '../../src/routes/route.ts';
import { secret } from '../../src/secret.ts';
import { type Answer, call, expectNobody, expectProblem, isSignedIn } from '../harness/clients/call.ts';
import { rawClient, rawMessage } from '../harness/clients/raw-client.ts';
import { until } from '../harness/clock/until.ts';
import { CANARY, startRelay, type TestRelay, USER } from '../harness/relay/relay.ts';
import { idOf, signedCookie, stored } from '../harness/relay/sessions.ts';
import { startTestApp } from '../harness/relay/test-app.ts';

const SERVICE = 'http://127.0.0.1:9';
const GOOD = JSON.stringify({ username: USER.name, password: CANARY.password });
const AWAY = new Problem('session_store_unavailable', 'Sessions are not available.', {
  cause: new Error('the store is away'),
});

let relay: TestRelay;
beforeAll(async () => {
  relay = await startRelay(SERVICE, { TRUST_PROXY: '1' });
});
afterEach(() => void jest.restoreAllMocks());
afterAll(() => relay.close());

let addresses = 0;
const login = (body = GOOD, headers: Record<string, string> = {}, { port }: { port: number } = relay) =>
  call(port, '/auth/login', {
    method: 'POST',
    headers: { 'Content-Type': 'application/json', 'X-Forwarded-For': `192.0.2.${++addresses}`, ...headers },
    body,
  });
const setCookie = ({ headers }: Answer) => headers['set-cookie'] ?? [];
const cookieOf = (answer: Answer) => setCookie(answer)[0]?.split(';')[0] as string;
const session = (Cookie: string) => call(relay.port, '/auth/session', { headers: { Cookie } });
/** Signs in with a cookie; returns that of the new session. */
async function signInWith(Cookie: string): Promise<string> {
  const answer = await login(GOOD, { Cookie });
  expect(answer.status).toBe(200);
  return cookieOf(answer);
}

describe('POST /auth/login', () => {
  test('answers like /auth/session, with limits of 30 minutes and 8 hours, and writes its session once', async () => {
    const [set, extend] = [jest.spyOn(relay.sessions, 'set'), jest.spyOn(relay.sessions, 'extend')];
    const before = Date.now();
    const answer = await login();
    const after = Date.now();
    expect(answer.status).toBe(200);
    expect([set.mock.calls.length, extend.mock.calls.length]).toEqual([1, 0]);
    const shown = JSON.parse(answer.body);
    const time = expect.stringMatching(/^\d{4}-\d\d-\d\dT[\d:.]+Z$/);
    expect(shown).toEqual({ user: { id: 'ada', name: 'ada' }, idleExpiresAt: time, absoluteExpiresAt: time });
    const [idle, absolute] = [Date.parse(shown.idleExpiresAt), Date.parse(shown.absoluteExpiresAt)];
    expect(absolute - idle).toBe(8 * 3_600_000 - 30 * 60_000);
    const begunAt = idle - 30 * 60_000;
    expect([before <= begunAt, begunAt <= after]).toEqual([true, true]);
    expect(await stored(relay.sessions, idOf(cookieOf(answer)))).toMatchObject({ user: { id: 'ada' } });
    expect((await session(cookieOf(answer))).body).toBe(answer.body);
  });

  test.each([
    ['a wrong password', '{"username":"ada","password":"wrong"}'],
    ['an unknown user', '{"username":"eve","password":"wrong"}'],
    ['a name of the object prototype', '{"username":"__proto__","password":"wrong"}'],
    ['no password', '{"username":"ada"}'],
    ['null', 'null'],
    ['a list', '[]'],
    ['a number for a password', '{"username":"ada","password":1}'],
    ['objects for both', '{"username":{"$ne":1},"password":{"$ne":1}}'],
    ['a huge password', `{"username":"ada","password":"${'x'.repeat(1025)}"}`],
  ])('answers %s with the same 401, without a cookie, and changes no session', async (_what, body) => {
    const Cookie = await signInWith('');
    const writes = (['set', 'extend', 'remove'] as const).map((one) => jest.spyOn(relay.sessions, one));
    const answer = await login(body, { Cookie });
    const { detail } = expectProblem(answer, 401, 'invalid_credentials');
    expect(detail).toBe('The user name or the password is wrong.');
    for (const name of ['set-cookie', 'www-authenticate']) expect(answer.headers).not.toHaveProperty(name);
    for (const write of writes) expect(write).not.toHaveBeenCalled();
    expect(isSignedIn(await session(Cookie))).toBe(true);
  });

  test('refuses a body of more than 4 KiB', async () => {
    expectProblem(await login(JSON.stringify({ username: 'x'.repeat(4096) })), 413, 'body_too_large');
  });

  test('refuses the right password of an account after 10 failures from any addresses', async () => {
    const failures = await Promise.all(
      Array.from({ length: 10 }, () => login(JSON.stringify({ username: 'bob', password: 'wrong' }))),
    );
    expect(failures.map(({ status }) => status)).toEqual(Array(10).fill(401));
    const answer = await login(JSON.stringify({ username: 'bob', password: CANARY.password }));
    expectProblem(answer, 429, 'too_many_attempts');
    expect(answer.headers).not.toHaveProperty('set-cookie');
  });

  test.each(['remove', 'set'] as const)(
    'is 503 without a cookie if the store fails at %s',
    async (method) => {
      const Cookie = await signInWith('');
      const set = jest.spyOn(relay.sessions, 'set');
      jest.spyOn(relay.sessions, method).mockRejectedValue(AWAY);
      const answer = await login(GOOD, { Cookie });
      expectProblem(answer, 503, 'session_store_unavailable');
      expect(answer.body).not.toContain('away');
      expect(answer.headers).not.toHaveProperty('set-cookie');
      expect(set).toHaveBeenCalledTimes(method === 'set' ? 1 : 0);
    },
  );

  test('stores nothing and sets no cookie if all sessions of the user end meanwhile', async () => {
    const { startTime } = relay.sessions;
    jest.spyOn(relay.sessions, 'startTime').mockImplementationOnce(async (owner) => {
      const time = await startTime(owner);
      await relay.sessions.removeUser(owner.userId);
      return time;
    });
    const answer = await login();
    expectProblem(answer, 400, 'sign_in_failed');
    expect(answer.headers).not.toHaveProperty('set-cookie');
    expect(await relay.sessions.removeUser(USER.name)).toBe(0);
  });
});

describe('signing in', () => {
  test('with a session gives another id, and removes the old session from the store', async () => {
    const before = await signInWith('');
    const after = await signInWith(before);
    expect(idOf(after)).not.toBe(idOf(before));
    expect(await stored(relay.sessions, idOf(before))).toBeNull();
    expectNobody(await session(before));
    expect(isSignedIn(await session(after))).toBe(true);
  });

  test('never uses an id of the request, even a signed one', async () => {
    const planted = signedCookie('planted-id-planted-id-planted-id');
    expect(idOf(await signInWith(planted))).not.toContain('planted');
    expectNobody(await session(planted));
  });

  test('in two browsers gives two sessions', async () => {
    const [one, other] = await Promise.all([signInWith(''), signInWith('')]);
    expect(idOf(one)).not.toBe(idOf(other));
    expect([isSignedIn(await session(one)), isSignedIn(await session(other))]).toEqual([true, true]);
  });
});

describe('the flags of the cookie', () => {
  const flagsOf = (cookie = '') => cookie.split('; ').slice(1).sort();
  const PLAIN = ['HttpOnly', 'Path=/', 'SameSite=Strict'];

  test.each(['', '1'])('follow PUBLIC_URL, whatever a proxy says; TRUST_PROXY=%j', async (TRUST_PROXY) => {
    const http = await startRelay(SERVICE, { TRUST_PROXY });
    const https = await startRelay(SERVICE, { TRUST_PROXY, PUBLIC_URL: 'https://app.example.com' });
    for (const proto of [undefined, 'https', 'http', 'https,http']) {
      const headers = proto === undefined ? {} : { 'X-Forwarded-Proto': proto };
      const [plain, ...more] = setCookie(await login(GOOD, headers, http));
      const [secure, ...others] = setCookie(await login(GOOD, headers, https));
      expect([plain?.split('=')[0], flagsOf(plain)]).toEqual(['bot_relay_session', PLAIN]);
      expect([secure?.split('=')[0], flagsOf(secure)]).toEqual([
        '__Host-bot_relay_session',
        [...PLAIN, 'Secure'],
      ]);
      expect([more, others]).toEqual([[], []]);
    }
    await http.close();
    await https.close();
  });

  test('are the same when it is removed', async () => {
    const environment = { PUBLIC_URL: 'https://app.example.com', COOKIE_SAME_SITE: 'none' };
    const secure = await startRelay(SERVICE, environment);
    const answer = await login(GOOD, {}, secure);
    const flags = ['HttpOnly', 'Path=/', 'SameSite=None', 'Secure'];
    expect(flagsOf(setCookie(answer)[0])).toEqual(flags);
    const headers = { Cookie: cookieOf(answer) };
    const out = await call(secure.port, '/auth/logout', { method: 'POST', headers });
    await secure.close();
    expect([out.status, setCookie(out).length]).toEqual([204, 1]);
    expect(setCookie(out)[0]).toMatch(/^__Host-bot_relay_session=;/);
    expect(flagsOf(setCookie(out)[0])).toEqual(['Expires=Thu, 01 Jan 1970 00:00:00 GMT', ...flags]);
  });
});

test('only a few passwords are verified at the same time, and none of a client that has left', async () => {
  const verified: string[] = [];
  let [arrived, left] = [0, 0];
  const { promise: finished, resolve: finish } = Promise.withResolvers<void>();
  const store = memorySessionStore();
  const cookie = sessionCookie({
    ...{ secrets: [secret('k'.repeat(32))], sameSite: 'strict', https: false, realm: 'password' },
  });
  const many = { maxFailures: 100, maxFailuresPerAddress: 100, maxConcurrentChecks: 2 };
  const post = passwordLogin({
    limitByAddress: async () => {},
    checkOrigin: () => {},
    body: { maxBytes: 4096, timeoutMs: 60_000 },
    attempts: loginAttempts(requestLimits(memoryCounts, createLogger('silent')), memoryAttempts, many),
    users: {
      has: () => true,
      async verify(name: string, password: string) {
        verified.push(password);
        await finished;
        return { id: name, name };
      },
    },
    sessions: openSessions({ store, cookie, limits: { idleMs: 60_000, absoluteMs: 60_000 } }),
  });
  const stage = await startTestApp((app) => {
    app.use((_req, res, next) => {
      arrived += 1;
      res.once('close', () => {
        left += 1;
      });
      next();
    });
    route(app, '/auth/login', { post });
  });
  const bodyOf = (password: string) => JSON.stringify({ username: 'ada', password });
  const clients = Array.from({ length: 6 }, (_, n) =>
    rawClient(stage.port, rawMessage({ path: '/auth/login', body: bodyOf(`left ${n}`) })),
  );
  await until(() => arrived === 6 && verified.length >= 2);
  for (const { socket } of clients) socket.destroy();
  await until(() => left === 6);
  const answer = login(bodyOf('stays'), {}, stage);
  await until(() => arrived === 7);
  expect(verified).toHaveLength(2);
  finish();
  expect((await answer).status).toBe(200);
  expect(verified.slice(2)).toEqual(['stays']);
  store.close();
  await stage.close();
});
