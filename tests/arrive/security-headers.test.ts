import { once } from 'node:events';
import { get } from 'node:http';
import { afterAll, beforeAll, describe, expect, test } from '@jest/globals';
import { type Call, call } from '../harness/clients/call.ts';
import { PROTECTION } from '../harness/clients/refused-requests.ts';
import { BOT_PATH, MESSAGE, startRelay } from '../harness/relay/relay.ts';
import { type RelayAndUpstream, startRelayAndUpstream } from '../harness/relay/relay-and-upstream.ts';
import { wholeStream } from '../harness/service/raw-upstream.ts';

const Origin = 'https://partner.example.org';
const JSON_TYPE = { 'Content-Type': 'application/json' };

let pair: RelayAndUpstream;
beforeAll(async () => {
  pair = await startRelayAndUpstream((socket) => socket.write(wholeStream('data: 1\n\n')), {
    ALLOWED_ORIGINS: Origin,
  });
});
afterAll(() => pair.close());

/** Those of refusals are in `tests/guard/refusals.test.ts`. */
describe('security headers', () => {
  test('have the names that their documents write', async () => {
    const [answer] = await once(get({ port: pair.relay.port, path: '/healthz' }), 'response');
    answer.resume();
    for (const name of ['Content-Security-Policy', 'X-Frame-Options', 'Cache-Control'])
      expect(answer.rawHeaders).toContain(name);
  });

  test.each<[string, number, string, Call]>([
    ['a probe', 200, '/healthz', {}],
    ['a session', 200, '/auth/session', {}],
    ['a stream', 200, BOT_PATH, { method: 'POST', body: MESSAGE, headers: JSON_TYPE }],
    [
      'a preflight',
      204,
      BOT_PATH,
      { method: 'OPTIONS', headers: { Origin, 'Access-Control-Request-Method': 'POST' } },
    ],
    ['a logout', 204, '/auth/logout', { method: 'POST' }],
  ])('are on %s (%i)', async (_kind, status, path, options) => {
    const answer = await call(pair.relay.port, path, {
      ...options,
      headers: { Cookie: pair.cookie, ...options.headers },
    });
    expect([answer.status, answer.headers]).toMatchObject([status, PROTECTION]);
    const cached = path === BOT_PATH && status === 200 ? 'no-cache, no-transform' : 'no-store';
    expect(answer.headers['cache-control']).toBe(cached);
    for (const name of ['x-powered-by', 'etag', 'strict-transport-security'])
      expect(answer.headers).not.toHaveProperty(name);
  });

  test('have HSTS only if PUBLIC_URL is https', async () => {
    const secure = await startRelay(pair.upstream.url, { PUBLIC_URL: 'https://app.example.com' });
    const { headers } = await call(secure.port, '/healthz');
    await secure.close();
    expect(headers['strict-transport-security']).toBe('max-age=31536000');
  });
});
