import { afterEach, expect, test } from '@jest/globals';
import { memorySessionStore } from '../../src/authenticate/sessions/memory-session-store.ts';
import { sessionCookie } from '../../src/authenticate/sessions/session-cookie.ts';
import type { SessionStore } from '../../src/authenticate/sessions/session-store.ts';
import { openSessions } from '../../src/authenticate/sessions/sessions.ts';
import { Problem } from '../../src/errors.ts';
import { finishSignIn } from '../../src/routes/oidc.ts';
import { secret } from '../../src/secret.ts';
import { call } from '../harness/clients/call.ts';
import { startTestApp, type TestApp } from '../harness/relay/test-app.ts';

const FLOW = { state: 's', nonce: 'n', verifier: 'v', returnTo: '/' };
const ADA = { id: 'ada', name: 'Ada' };
const UNAVAILABLE = new Problem('session_store_unavailable', 'Not now.');

let stage: TestApp;
let store: SessionStore;
afterEach(() => {
  store.close();
  return stage.close();
});

/** Runs the callback; `removedSince` answers whether the user was signed out meanwhile. */
async function comeBack(removedSince: SessionStore['removedSince']) {
  store = { ...memorySessionStore(), removedSince };
  const cookie = sessionCookie({
    secrets: [secret('k'.repeat(32))],
    realm: 'oidc',
    sameSite: 'lax',
    https: true,
  });
  const limits = { idleMs: 60_000, absoluteMs: 60_000 };
  const nothing = async () => {};
  const steps = finishSignIn({
    limitByAddress: nothing,
    provider: {
      finishSignIn: async () => ({ user: ADA, provider: {} }),
      discover: nothing,
      signInUrl: async () => '',
      signOutUrl: async () => undefined,
    } as never,
    flows: { begin: () => FLOW, keep: nothing, take: async () => FLOW } as never,
    authPath: '/auth',
    page: () => false,
    previous: { end: nothing, remember: () => {} },
    sessions: openSessions({ store, cookie, limits }),
    store,
    body: { maxBytes: 1, timeoutMs: 1 },
    once: async () => true,
  });
  stage = await startTestApp((app) => app.get('/', steps));
  return call(stage.port, '/?state=s');
}

test.each<[string, SessionStore['removedSince'], number]>([
  ['it is unknown whether the user was signed out', () => Promise.reject(UNAVAILABLE), 503],
  ['the user was signed out meanwhile', async () => true, 400],
])('if %s, no session cookie is set and no session stays', async (_what, removedSince, status) => {
  const answer = await comeBack(removedSince);
  expect(answer.status).toBe(status);
  expect(answer.headers['set-cookie']).toBeUndefined();
  expect(await store.removeUser(ADA.id)).toBe(0);
});

test('a sign-in that is confirmed gets its cookie', async () => {
  const answer = await comeBack(async () => false);
  expect(answer.headers['set-cookie']).toHaveLength(1);
  expect(await store.removeUser(ADA.id)).toBe(1);
});
