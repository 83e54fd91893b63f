import { once } from 'node:events';
import { afterAll, afterEach, beforeAll, describe, expect, jest, test } from '@jest/globals';
import { Problem } from '../../src/errors.ts';
import { passwordLogin } from '../../src/routes/password.ts';
import { route } from '../../src/routes/route.ts';
import { type Answer, call, expectNobody, expectProblem, isSignedIn } from '../harness/clients/call.ts';
import { rawClient, rawMessage } from '../harness/clients/raw-client.ts';
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
    '{"username":"ada","password":"wrong"}',
    '{"username":"eve","password":"wrong"}',
    '{"username":"__proto__","password":"wrong"}',
    '{"username":"ada"}',
    'null',
    '{"username":{"$ne":1},"password":{"$ne":1}}',
    `{"username":"ada","password":"${'x'.repeat(1025)}"}`,
  ])('answers %.45s with the same 401, without a cookie, and changes no session', async (body) => {
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
});

test('the wait of a sign-in whose client leaves is ended', async () => {
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
