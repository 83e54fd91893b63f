import { afterEach, beforeEach, expect, test } from '@jest/globals';
import { memorySessionStore } from '../../src/authenticate/sessions/memory-session-store.ts';
import { sessionCookie } from '../../src/authenticate/sessions/session-cookie.ts';
import type { SessionStore } from '../../src/authenticate/sessions/session-store.ts';
import { openSessions } from '../../src/authenticate/sessions/sessions.ts';
import { createLogger } from '../../src/logger.ts';
import { loginAttempts } from '../../src/pace/login-attempts.ts';
import { memoryAttempts } from '../../src/pace/memory-attempts.ts';
import { memoryCounts, requestLimits } from '../../src/pace/request-limits.ts';
import { passwordLogin } from '../../src/routes/password.ts';
import { route } from '../../src/routes/route.ts';
import { secret } from '../../src/secret.ts';
import { call } from '../harness/clients/call.ts';
import { rawClient, rawMessage } from '../harness/clients/raw-client.ts';
import { until } from '../harness/relay/relay-and-upstream.ts';
import { startTestApp, type TestApp } from '../harness/relay/test-app.ts';

let stage: TestApp;
let store: SessionStore;
/** The passwords whose verification has begun. */
let verified: string[];
let arrived: number;
let left: number;
let finish: () => void;
beforeEach(async () => {
  store = memorySessionStore();
  verified = [];
  arrived = 0;
  left = 0;
  const finished = new Promise<void>((resolve) => {
    finish = resolve;
  });
  const users = {
    has: () => true,
    async verify(name: string, password: string) {
      verified.push(password);
      await finished;
      return { id: name, name };
    },
  };
  const secrets = [secret('0123456789abcdef0123456789abcdef')];
  const cookie = sessionCookie({ secrets, sameSite: 'strict', https: false, realm: 'password' });
  const limits = { idleMs: 60_000, absoluteMs: 60_000 };
  const many = { maxFailures: 100, maxFailuresPerAddress: 100 };
  const limit = requestLimits(memoryCounts, createLogger('silent'));
  const login = passwordLogin({
    limitByAddress: async () => {},
    checkOrigin: () => {},
    body: { maxBytes: 4096, timeoutMs: 60_000 },
    attempts: loginAttempts(limit, memoryAttempts, { ...many, maxConcurrentChecks: 2 }),
    users,
    sessions: openSessions({ store, cookie, limits }),
  });
  stage = await startTestApp((app) => {
    app.use((_req, res, next) => {
      arrived += 1;
      res.once('close', () => {
        left += 1;
      });
      next();
    });
    route(app, '/login', { post: login });
  });
});
afterEach(async () => {
  store.close();
  await stage.close();
});

const bodyOf = (password: string) => JSON.stringify({ username: 'ada', password });

test('only a few passwords are verified at the same time, and none of a client that has left', async () => {
  const clients = Array.from({ length: 6 }, (_, n) =>
    rawClient(stage.port, rawMessage({ path: '/login', body: bodyOf(`left ${n}`) })),
  );
  await until(() => arrived === 6 && verified.length >= 2);
  for (const { socket } of clients) socket.destroy();
  await until(() => left === 6);
  const answer = call(stage.port, '/login', {
    method: 'POST',
    headers: { 'Content-Type': 'application/json' },
    body: bodyOf('stays'),
  });
  await until(() => arrived === 7);
  expect(verified).toHaveLength(2);
  finish();
  expect((await answer).status).toBe(200);
  expect(verified).toHaveLength(3);
  expect(verified[2]).toBe('stays');
});
