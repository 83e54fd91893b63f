import { afterAll, expect, test } from '@jest/globals';
import { COMMAND_TIMEOUT_MS } from '../../src/storage/redis-errors.ts';
import { call, expectProblem } from '../harness/clients/call.ts';
import { describeWithRedis, startRedis, stopRedis } from '../harness/redis/redis.ts';
import { BOT_PATH, MESSAGE, startRelay, USER } from '../harness/relay/relay.ts';

afterAll(() => stopRedis());

describeWithRedis('while Redis does not answer', () => {
  test('whatever needs a session is answered with 503 within a second', async () => {
    const redis = await startRedis();
    const limits = { commandTimeoutMs: COMMAND_TIMEOUT_MS };
    const relay = await startRelay('http://127.0.0.1:9', { REDIS_URL: redis.url }, limits);
    const Cookie = await relay.signIn();
    const post = (path: string, body: string, headers = {}) =>
      call(relay.port, path, {
        method: 'POST',
        headers: { 'Content-Type': 'application/json', ...headers },
        body,
      });
    redis.pause();
    const from = performance.now();
    const answers = await Promise.all([
      post(BOT_PATH, MESSAGE, { Cookie }),
      post('/auth/login', JSON.stringify({ username: USER.name, password: USER.password })),
      post('/auth/logout', '', { Cookie }),
      call(relay.port, '/auth/session', { headers: { Cookie } }),
    ]);
    expect(performance.now() - from).toBeLessThan(1000);
    for (const answer of answers) expectProblem(answer, 503, 'session_store_unavailable');
    redis.resume();
    await relay.close();
  });
});
