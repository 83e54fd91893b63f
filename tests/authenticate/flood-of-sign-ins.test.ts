import { afterEach, beforeEach, expect, test } from '@jest/globals';
import { accountOf, login } from '../../src/authenticate/password/password-login.ts';
import { attachSession } from '../../src/authenticate/sessions/attach-session.ts';
import { MemorySessionStore } from '../../src/authenticate/sessions/memory-session-store.ts';
import { clientAddress } from '../../src/http/client-address.ts';
import { jsonBody } from '../../src/http/json-body.ts';
import { createLogger } from '../../src/logger.ts';
import { loginAttempts } from '../../src/pace/login-attempts.ts';
import { memoryAttempts } from '../../src/pace/memory-attempts.ts';
import { memoryCounts, requestLimits } from '../../src/pace/request-limits.ts';
import { secret } from '../../src/secret.ts';
import { call } from '../support/call.ts';
import { until } from '../support/pair.ts';
import { rawClient, rawMessage } from '../support/raw-client.ts';
import { startStage, type TestStage } from '../support/stage.ts';

let stage: TestStage;
let sessions: MemorySessionStore;
/** The passwords that were verified, or are being. */
let verified: string[];
let arrived: number;
let left: number;
let finish: () => void;
beforeEach(async () => {
  sessions = new MemorySessionStore();
  verified = [];
  arrived = 0;
  left = 0;
  const finished = new Promise<void>((resolve) => {
    finish = resolve;
  });
  const users = {
    async verify(name: string, password: string) {
      verified.push(password);
      await finished;
      return { id: name, name };
    },
  };
  const secrets = [secret('0123456789abcdef0123456789abcdef')];
  stage = await startStage((app) => {
    app.use((_req, res, next) => {
      arrived += 1;
      res.once('close', () => {
        left += 1;
      });
      next();
    });
    app.use(jsonBody({ maxBytes: 4096, timeoutMs: 1000 }));
    app.use(attachSession({ store: sessions, secrets, sameSite: 'strict', https: false, realm: 'password' }));
    const limit = requestLimits(memoryCounts, createLogger('silent'));
    const many = { maxFailures: 100, maxFailuresPerAddress: 100, windowMs: 60_000 };
    const keys = { checkedAtOnce: 2, addressOf: clientAddress, accountOf };
    const { attempt } = loginAttempts(limit, memoryAttempts, { ...many, ...keys });
    app.post('/login', login(users, { idleMs: 60_000, absoluteMs: 60_000 }, attempt));
  });
});
afterEach(async () => {
  sessions.close();
  await stage.close();
});

const bodyOf = (password: string) => JSON.stringify({ username: 'ada', password });

test('few passwords are verified at once, and none of a client that has left', async () => {
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
