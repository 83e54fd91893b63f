import { afterAll, beforeAll, describe, expect, test } from '@jest/globals';
import { type Session, sessionKey } from '../../src/authenticate/sessions/session.ts';
import { call } from '../harness/clients/call.ts';
import { CANARY, startRelay, type TestRelay } from '../harness/relay/relay.ts';
import { idOf, signedCookie, stored } from '../harness/relay/sessions.ts';

const OLD = CANARY.sessionSecret;
const NEW = 'canary-new-session-secret-abcdef-9876543210';

let before: TestRelay;
let cookie: string;
beforeAll(async () => {
  before = await startRelay('http://127.0.0.1:9', { SESSION_SECRETS: OLD });
  cookie = await before.signIn();
});
afterAll(() => before.close());

/** The status of `/auth/session` on a relay with `secrets` that shares the first one's sessions. */
async function statusWith(secrets: string): Promise<number> {
  const relay = await startRelay('http://127.0.0.1:9', { SESSION_SECRETS: secrets });
  const session = await stored(before.sessions, idOf(cookie));
  await relay.sessions.set(sessionKey(idOf(cookie)), session as Session);
  const { status } = await call(relay.port, '/auth/session', { headers: { Cookie: cookie } });
  await relay.close();
  return status;
}

describe('SESSION_SECRETS', () => {
  test('with the old secret after the new one keeps the sessions that the old one signed', async () => {
    expect(await statusWith(`${NEW},${OLD}`)).toBe(200);
  });

  test('without the old secret ends them', async () => {
    expect(await statusWith(NEW)).toBe(401);
  });

  test('signs new sessions with the first secret', async () => {
    const relay = await startRelay('http://127.0.0.1:9', { SESSION_SECRETS: `${NEW},${OLD}` });
    const fresh = await relay.signIn();
    await relay.close();
    expect(decodeURIComponent(fresh)).toBe(decodeURIComponent(signedCookie(idOf(fresh), NEW)));
  });
});
