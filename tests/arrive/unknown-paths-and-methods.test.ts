import { afterAll, beforeAll, describe, expect, test } from '@jest/globals';
import { call, expectProblem } from '../harness/clients/call.ts';
import { BOT_PATH, startRelay, type TestRelay } from '../harness/relay/relay.ts';

let relay: TestRelay;
beforeAll(async () => {
  relay = await startRelay('http://127.0.0.1:9');
});
afterAll(() => relay.close());

describe('a request that matches no route', () => {
  test.each(['/', '/nowhere', '/auth', '/auth/', '/generic', '/metrics', '/favicon.ico'])(
    'to %s is answered with 404',
    async (path) => {
      expectProblem(await call(relay.port, path), 404, 'not_found');
    },
  );

  test.each([
    ['/healthz', 'GET, HEAD', ['POST', 'PUT', 'DELETE', 'PATCH', 'OPTIONS']],
    ['/readyz', 'GET, HEAD', ['POST', 'DELETE']],
    ['/auth/session', 'GET, HEAD', ['POST', 'PUT', 'DELETE', 'OPTIONS']],
    ['/auth/login', 'POST', ['GET', 'HEAD', 'PUT', 'DELETE', 'OPTIONS']],
    ['/auth/logout', 'POST', ['GET', 'HEAD', 'PUT', 'DELETE', 'OPTIONS']],
    ['/auth/logout-all', 'POST', ['GET', 'HEAD', 'PUT', 'DELETE', 'OPTIONS']],
    [BOT_PATH, 'GET, POST', ['HEAD', 'PUT', 'DELETE', 'PATCH', 'OPTIONS', 'PROPFIND']],
  ])('to %s with a method other than %s is answered with 405 and Allow', async (path, allow, methods) => {
    for (const method of methods) {
      const answer = await call(relay.port, path, { method });
      expect([method, answer.status, answer.headers.allow]).toEqual([method, 405, allow]);
      if (method !== 'HEAD') expectProblem(answer, 405, 'method_not_allowed');
    }
  });
});
