import { afterAll, beforeAll, describe, expect, test } from '@jest/globals';
import { call, expectProblem } from '../harness/clients/call.ts';
import { CANARY, startRelay, type TestRelay, USER } from '../harness/relay/relay.ts';
import { idOf, signedCookie, stored } from '../harness/relay/sessions.ts';

let relay: TestRelay;
beforeAll(async () => {
  relay = await startRelay('http://127.0.0.1:9');
});
afterAll(() => relay.close());

async function signInWith(cookie: string): Promise<string> {
  const { status, headers } = await call(relay.port, '/auth/login', {
    method: 'POST',
    headers: { Cookie: cookie, 'Content-Type': 'application/json' },
    body: JSON.stringify({ username: USER.name, password: CANARY.password }),
  });
  expect(status).toBe(200);
  return headers['set-cookie']?.[0]?.split(';')[0] as string;
}

const session = (cookie: string) => call(relay.port, '/auth/session', { headers: { Cookie: cookie } });

describe('signing in', () => {
  test('with a session gives another id, and removes the old session from the store', async () => {
    const before = await signInWith('');
    const after = await signInWith(before);
    expect(idOf(after)).not.toBe(idOf(before));
    expect(await stored(relay.sessions, idOf(before))).toBeNull();
    expectProblem(await session(before), 401, 'unauthenticated');
    expect(await session(after)).toMatchObject({ status: 200 });
  });

  test('never uses an id of the request, even a signed one', async () => {
    const planted = signedCookie('planted-id-planted-id-planted-id');
    const after = await signInWith(planted);
    expect(idOf(after)).not.toBe('planted-id-planted-id-planted-id');
    expectProblem(await session(planted), 401, 'unauthenticated');
  });

  test('in two browsers gives two sessions', async () => {
    const [one, other] = await Promise.all([signInWith(''), signInWith('')]);
    expect(idOf(one)).not.toBe(idOf(other));
    expect([(await session(one)).status, (await session(other)).status]).toEqual([200, 200]);
  });

  test('that fails does not change the session of the request', async () => {
    const before = await signInWith('');
    const answer = await call(relay.port, '/auth/login', {
      method: 'POST',
      headers: { Cookie: before, 'Content-Type': 'application/json' },
      body: '{"username":"ada"}',
    });
    expectProblem(answer, 401, 'invalid_credentials');
    expect(answer.headers).not.toHaveProperty('set-cookie');
    expect(await session(before)).toMatchObject({ status: 200 });
  });
});
