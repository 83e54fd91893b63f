import { afterEach, beforeEach, describe, expect, jest, test } from '@jest/globals';
import { Problem } from '../../src/errors.ts';
import { call, expectProblem } from '../harness/clients/call.ts';
import { BOT_PATH, startRelay, type TestRelay, USER } from '../harness/relay/relay.ts';
import { change, idOf } from '../harness/relay/sessions.ts';
import { type RawUpstream, startRawUpstream, wholeStream } from '../harness/service/raw-upstream.ts';

const ANSWER = wholeStream('data: 1\n\n');
const AWAY = new Problem('session_store_unavailable', 'Away.', { retryAfter: 1 });

let upstream: RawUpstream;
let relay: TestRelay;
let cookie: string;
beforeEach(async () => {
  upstream = await startRawUpstream((socket) => socket.write(ANSWER));
  relay = await startRelay(upstream.url);
  cookie = await relay.signIn();
});
afterEach(async () => {
  await relay.close();
  await upstream.close();
});

describe('a message', () => {
  test('extends its session once and never writes it, so that its end does not wait for the store', async () => {
    const extend = jest.spyOn(relay.sessions, 'extend');
    const set = jest.spyOn(relay.sessions, 'set');
    const response = await relay.send(cookie, { headers: { 'X-Request-Id': 'let-go-0001' } });
    expect(await response.text()).toBe('data: 1\n\n');
    await relay.logLine(({ requestId }) => requestId === 'let-go-0001');
    expect(extend).toHaveBeenCalledTimes(1);
    expect(set).not.toHaveBeenCalled();
    expect(response.headers.getSetCookie()).toEqual([]);
  });

  test('whose session cannot be extended is answered with 503 and not sent', async () => {
    jest.spyOn(relay.sessions, 'extend').mockRejectedValue(AWAY);
    expect(await relay.send(cookie)).toMatchObject({ status: 503 });
    expect(upstream.sockets).toHaveLength(0);
  });

  test.each(['removed', 'missing'] as const)(
    'whose session is %s when it is extended is answered with 401 and not sent',
    async (state) => {
      jest.spyOn(relay.sessions, 'extend').mockResolvedValue(state);
      expect(await relay.send(cookie)).toMatchObject({ status: 401 });
      expect(upstream.sockets).toHaveLength(0);
    },
  );
});

describe('a request that is refused', () => {
  const post = (path: string, body = '') =>
    call(relay.port, path, {
      method: 'POST',
      headers: { Cookie: cookie, 'Content-Type': 'application/json' },
      body,
    });

  test.each([
    ['a sign-in with a wrong password', '/auth/login', 401, '{"username":"ada","password":"wrong"}'],
    ['a message of an expired session', BOT_PATH, 401, '{}'],
  ])('writes nothing to the store at its end: %s', async (_what, path, status, body) => {
    if (path === BOT_PATH) await change(relay.sessions, idOf(cookie), { absoluteExpiresAt: 1 });
    const writes = (['set', 'extend', 'remove'] as const).map((method) => jest.spyOn(relay.sessions, method));
    expect((await post(path, body)).status).toBe(status);
    for (const write of writes) expect(write).not.toHaveBeenCalled();
  });

  test('by the limit by session writes nothing to the store', async () => {
    await relay.close();
    relay = await startRelay(upstream.url, { CLIENT_LIMIT_PER_SESSION: '1' });
    cookie = await relay.signIn();
    const writes = (['set', 'extend', 'remove'] as const).map((method) => jest.spyOn(relay.sessions, method));
    const ask = () => call(relay.port, '/auth/session', { headers: { Cookie: cookie } });
    expect((await ask()).status).toBe(200);
    expectProblem(await ask(), 429, 'too_many_attempts');
    expectProblem(await post(BOT_PATH, '{}'), 429, 'too_many_attempts');
    for (const write of writes) expect(write).not.toHaveBeenCalled();
  });

  test('because all sessions of its user end during a sign-in stores none, and sets no cookie', async () => {
    const { sessions } = relay;
    const { startTime } = sessions;
    jest.spyOn(sessions, 'startTime').mockImplementationOnce(async (owner) => {
      const time = await startTime(owner);
      await sessions.removeUser(owner.userId);
      return time;
    });
    const answer = await post(
      '/auth/login',
      JSON.stringify({ username: USER.name, password: USER.password }),
    );
    expectProblem(answer, 400, 'sign_in_failed');
    expect(answer.headers).not.toHaveProperty('set-cookie');
    expect(await sessions.removeUser(USER.name)).toBe(0);
  });

  test('because the store fails during a sign-in writes nothing more, and sets no cookie', async () => {
    const set = jest.spyOn(relay.sessions, 'set');
    jest.spyOn(relay.sessions, 'remove').mockRejectedValue(AWAY);
    const answer = await post(
      '/auth/login',
      JSON.stringify({ username: USER.name, password: USER.password }),
    );
    expectProblem(answer, 503, 'session_store_unavailable');
    expect(answer.headers).not.toHaveProperty('set-cookie');
    expect(set).not.toHaveBeenCalled();
  });
});

describe('a logout while the store fails', () => {
  test.each([
    ['/auth/logout', 'remove'],
    ['/auth/logout-all', 'removeUser'],
  ] as const)('is 503 and asks the store for nothing more: %s', async (path, method) => {
    const { sessions } = relay;
    const extend = jest.spyOn(sessions, 'extend');
    const set = jest.spyOn(sessions, 'set');
    jest.spyOn(sessions, method).mockRejectedValue(AWAY);
    const answer = await call(relay.port, path, { method: 'POST', headers: { Cookie: cookie } });
    expectProblem(answer, 503, 'session_store_unavailable');
    expect(answer.headers).not.toHaveProperty('set-cookie');
    for (const other of [extend, set]) expect(other).not.toHaveBeenCalled();
    jest.restoreAllMocks();
    expect((await call(relay.port, '/auth/session', { headers: { Cookie: cookie } })).status).toBe(200);
  });
});

describe('a sign-in', () => {
  test('writes its session once', async () => {
    const set = jest.spyOn(relay.sessions, 'set');
    const extend = jest.spyOn(relay.sessions, 'extend');
    await relay.signIn();
    expect(set).toHaveBeenCalledTimes(1);
    expect(extend).not.toHaveBeenCalled();
  });
});
