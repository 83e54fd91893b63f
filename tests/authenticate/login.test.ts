import { afterAll, beforeAll, describe, expect, jest, test } from '@jest/globals';
import { Problem } from '../../src/errors.ts';
import { call, expectProblem } from '../harness/clients/call.ts';
import { CANARY, startRelay, type TestRelay, USER } from '../harness/relay/relay.ts';
import { idOf, stored } from '../harness/relay/sessions.ts';

let relay: TestRelay;
beforeAll(async () => {
  relay = await startRelay('http://127.0.0.1:9', { TRUST_PROXY: '1' });
});
afterAll(() => relay.close());

let addresses = 0;
const login = (body: string, from = `192.0.2.${++addresses}`) =>
  call(relay.port, '/auth/login', {
    method: 'POST',
    headers: { 'Content-Type': 'application/json', 'X-Forwarded-For': from },
    body,
  });

describe('POST /auth/login', () => {
  test('answers like /auth/session, with limits of 30 minutes and 8 hours', async () => {
    const before = Date.now();
    const { status, headers, body } = await login(
      JSON.stringify({ username: USER.name, password: CANARY.password }),
    );
    const session = JSON.parse(body);
    expect(status).toBe(200);
    expect(session).toEqual({
      user: { id: 'ada', name: 'ada' },
      idleExpiresAt: expect.stringMatching(/^\d{4}-\d\d-\d\dT[\d:.]+Z$/),
      absoluteExpiresAt: expect.stringMatching(/^\d{4}-\d\d-\d\dT[\d:.]+Z$/),
    });
    const [idle, absolute] = [Date.parse(session.idleExpiresAt), Date.parse(session.absoluteExpiresAt)];
    expect(absolute - idle).toBe(8 * 3_600_000 - 30 * 60_000);
    expect(idle - before - 30 * 60_000).toBeGreaterThanOrEqual(0);
    expect(idle - Date.now() - 30 * 60_000).toBeLessThanOrEqual(0);
    const cookie = headers['set-cookie']?.[0]?.split(';')[0] as string;
    expect(await stored(relay.sessions, idOf(cookie))).toMatchObject({ user: { id: 'ada' } });
    expect((await call(relay.port, '/auth/session', { headers: { Cookie: cookie } })).body).toBe(body);
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
  ])('answers %s with the same 401, without a cookie', async (_what, body) => {
    const answer = await login(body);
    const { detail } = expectProblem(answer, 401, 'invalid_credentials');
    expect(detail).toBe('The user name or the password is wrong.');
    expect(answer.headers).not.toHaveProperty('set-cookie');
    expect(answer.headers).not.toHaveProperty('www-authenticate');
  });

  test('answers only after the session is stored', async () => {
    const cause = new Error('the store is away');
    const away = new Problem('session_store_unavailable', 'Sessions are not available.', { cause });
    const set = jest.spyOn(relay.sessions, 'set').mockRejectedValue(away);
    const { status, body } = await login(JSON.stringify({ username: USER.name, password: CANARY.password }));
    set.mockRestore();
    expect(status).toBe(503);
    expect(body).not.toContain('away');
  });

  test('refuses a body of more than 4 KiB', async () => {
    expectProblem(await login(JSON.stringify({ username: 'x'.repeat(4096) })), 413, 'body_too_large');
  });

  test('refuses the right password of an account after 10 failures from any addresses', async () => {
    const wrong = JSON.stringify({ username: 'bob', password: 'wrong' });
    const failures = await Promise.all(Array.from({ length: 10 }, () => login(wrong)));
    expect(failures.map(({ status }) => status)).toEqual(Array(10).fill(401));
    const answer = await login(JSON.stringify({ username: 'bob', password: CANARY.password }));
    expectProblem(answer, 429, 'too_many_attempts');
    expect(answer.headers).not.toHaveProperty('set-cookie');
  });
});
