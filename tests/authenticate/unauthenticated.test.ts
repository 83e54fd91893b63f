import { afterAll, beforeAll, describe, expect, test } from '@jest/globals';
import { call, expectProblem } from '../harness/clients/call.ts';
import { BOT_PATH, MESSAGE, startRelay, type TestRelay } from '../harness/relay/relay.ts';
import { type RawUpstream, startRawUpstream } from '../harness/service/raw-upstream.ts';

let upstream: RawUpstream;
let relay: TestRelay;
beforeAll(async () => {
  upstream = await startRawUpstream(() => {});
  relay = await startRelay(upstream.url);
});
afterAll(async () => {
  await relay.close();
  await upstream.close();
});

const accepts = [
  'text/event-stream',
  '*/*',
  'text/html',
  'text/html,application/xhtml+xml;q=0.9',
  'nonsense',
  '',
];
const routes = [
  ['POST', BOT_PATH],
  ['GET', '/auth/session'],
  ['POST', '/auth/logout'],
  ['POST', '/auth/logout-all'],
] as const;

describe('without a session', () => {
  test.each(routes.flatMap((route) => accepts.map((accept) => [...route, accept] as const)))(
    '%s %s that accepts "%s" is answered with 401 in JSON, without a redirect or WWW-Authenticate',
    async (method, path, accept) => {
      const headers = {
        Accept: accept,
        'Content-Type': 'application/json',
        'X-Requested-With': 'XMLHttpRequest',
      };
      const answer = await call(relay.port, path, {
        method,
        headers,
        ...(method === 'POST' ? { body: MESSAGE } : {}),
      });
      expectProblem(answer, 401, 'unauthenticated');
      expect(answer.headers).not.toHaveProperty('www-authenticate');
      expect(answer.headers).not.toHaveProperty('location');
      expect(answer.headers).not.toHaveProperty('set-cookie');
      expect(upstream.sockets).toHaveLength(0);
    },
  );
});
