import { once } from 'node:events';
import { get } from 'node:http';
import { afterAll, beforeAll, describe, expect, test } from '@jest/globals';
import { type Answer, type Call, call } from '../harness/clients/call.ts';
import { BOT_PATH, MESSAGE, startRelay } from '../harness/relay/relay.ts';
import { type RelayAndUpstream, startRelayAndUpstream } from '../harness/relay/relay-and-upstream.ts';
import { wholeStream } from '../harness/service/raw-upstream.ts';

const PROTECTION = {
  'content-security-policy': "default-src 'none';frame-ancestors 'none';base-uri 'none';form-action 'none'",
  'x-content-type-options': 'nosniff',
  'x-frame-options': 'DENY',
  'referrer-policy': 'no-referrer',
  'cross-origin-resource-policy': 'same-origin',
};
const ORIGIN = 'https://partner.example.org';

let pair: RelayAndUpstream;
beforeAll(async () => {
  pair = await startRelayAndUpstream((socket) => socket.write(wholeStream('data: 1\n\n')), {
    ALLOWED_ORIGINS: ORIGIN,
  });
});
afterAll(() => pair.close());

const preflight = { Origin: ORIGIN, 'Access-Control-Request-Method': 'POST' };
const kinds: [string, number, string, Call][] = [
  ['a probe', 200, '/healthz', {}],
  ['a session', 200, '/auth/session', {}],
  [
    'a stream',
    200,
    BOT_PATH,
    { method: 'POST', body: MESSAGE, headers: { 'Content-Type': 'application/json' } },
  ],
  ['a preflight', 204, BOT_PATH, { method: 'OPTIONS', headers: preflight }],
  ['a refused body', 415, BOT_PATH, { method: 'POST', body: MESSAGE }],
  ['an unknown path', 404, '/nowhere', {}],
  ['another method', 405, '/auth/login', {}],
  ['a foreign site', 403, '/auth/logout', { method: 'POST', headers: { 'Sec-Fetch-Site': 'cross-site' } }],
  ['a logout', 204, '/auth/logout', { method: 'POST' }],
  ['an ended session', 401, '/auth/session', {}],
];

describe('security headers', () => {
  test('have the names that their documents write', async () => {
    const [answer] = await once(get({ port: pair.relay.port, path: '/healthz' }), 'response');
    answer.resume();
    for (const name of ['Content-Security-Policy', 'X-Frame-Options', 'Cache-Control'])
      expect(answer.rawHeaders).toContain(name);
  });

  test.each(kinds)('are on %s (%i)', async (_kind, status, path, options) => {
    const answer: Answer = await call(pair.relay.port, path, {
      ...options,
      headers: { Cookie: pair.cookie, ...options.headers },
    });
    expect(answer.status).toBe(status);
    expect(answer.headers).toMatchObject(PROTECTION);
    expect(answer.headers['x-request-id']).toMatch(/./);
    expect(answer.headers['cache-control']).toBe(
      path === BOT_PATH && status === 200 ? 'no-cache, no-transform' : 'no-store',
    );
    expect(answer.headers).not.toHaveProperty('x-powered-by');
    expect(answer.headers).not.toHaveProperty('etag');
    expect(answer.headers).not.toHaveProperty('strict-transport-security');
  });

  test('have HSTS only if PUBLIC_URL is https', async () => {
    const secure = await startRelay(pair.upstream.url, { PUBLIC_URL: 'https://app.example.com' });
    const { headers } = await call(secure.port, '/healthz');
    await secure.close();
    expect(headers['strict-transport-security']).toBe('max-age=31536000');
  });
});
