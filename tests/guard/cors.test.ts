import { afterAll, afterEach, beforeAll, describe, expect, jest, test } from '@jest/globals';
import { describeInChromium, oneChromium } from '../harness/browser/chromium.ts';
import { type Answer, call, expectProblem } from '../harness/clients/call.ts';
import { startFakeLoadBalancer } from '../harness/faults/fake-load-balancer.ts';
import { BOT_PATH, CANARY, MESSAGE, startRelay } from '../harness/relay/relay.ts';
import { type RelayAndUpstream, startRelayAndUpstream } from '../harness/relay/relay-and-upstream.ts';
import { type RawRequest, wholeStream } from '../harness/service/raw-upstream.ts';

const ALLOWED = 'https://partner.example.org';
const FOREIGN = [
  ...['https://other.example.net', 'null', 'https://partner.example.org.evil.net', '*'],
  ...['http://partner.example.org', 'https://PARTNER.example.org'],
];

const startWith = (environment: Record<string, string>) =>
  startRelayAndUpstream((socket) => socket.write(wholeStream('data: 1\n\n')), environment);
let pair: RelayAndUpstream;
beforeAll(async () => {
  pair = await startWith({
    ALLOWED_ORIGINS: ALLOWED,
    RATE_LIMIT: '50',
    RATE_WINDOW_MS: '3600000',
  });
});
afterAll(() => pair.close());
afterEach(() => {
  jest.restoreAllMocks();
});

const preflight = (origin: string, path = BOT_PATH, headers = 'content-type,x-anything') =>
  call(pair.relay.port, path, {
    method: 'OPTIONS',
    headers: {
      ...{ Origin: origin, Cookie: pair.cookie },
      ...{ 'Access-Control-Request-Method': 'POST', 'Access-Control-Request-Headers': headers },
    },
  });
const message = (origin: string, headers: Record<string, string> = {}) =>
  call(pair.relay.port, BOT_PATH, {
    method: 'POST',
    body: MESSAGE,
    headers: { Origin: origin, Cookie: pair.cookie, 'Content-Type': 'application/json', ...headers },
  });
const corsHeaders = ({ headers }: Answer) =>
  Object.fromEntries(Object.entries(headers).filter(([name]) => name.startsWith('access-control-')));
const READABLE = {
  'access-control-allow-origin': ALLOWED,
  'access-control-allow-credentials': 'true',
  'access-control-expose-headers':
    'Content-Disposition, Content-Range, RateLimit, RateLimit-Policy, Retry-After, X-Request-Id, X-Total-Bytes, X-Trace-Id, X-Truncated',
};

describe('a preflight', () => {
  test('of an allowed origin is answered with what its page may send', async () => {
    const answer = await preflight(ALLOWED);
    expect([answer.status, answer.body]).toEqual([204, '']);
    expect(corsHeaders(answer)).toEqual({
      'access-control-allow-origin': ALLOWED,
      'access-control-allow-credentials': 'true',
      'access-control-allow-methods': 'POST, GET, DELETE, PUT',
      'access-control-allow-headers':
        'Content-Type, Last-Event-ID, Range, Traceparent, X-Request-Id, X-API-KEY, X-ASGARD-USER-IDENTITY-HINT, Idempotency-Key',
      'access-control-max-age': '600',
    });
    expect(answer.headers.vary).toMatch(/\bOrigin\b/);
  });

  test('must be an OPTIONS request with a method to ask for', async () => {
    const headers = { Origin: ALLOWED, 'Access-Control-Request-Method': 'POST' };
    const probe = await call(pair.relay.port, '/healthz', { headers });
    expect([probe.status, probe.body]).toEqual([200, '{"status":"ok"}']);
    expect(corsHeaders(probe)).not.toHaveProperty('access-control-allow-methods');
    const asked = await call(pair.relay.port, BOT_PATH, { method: 'OPTIONS', headers: { Origin: ALLOWED } });
    expectProblem(asked, 405, 'method_not_allowed');
  });

  test('needs no session, sets no cookie, calls no store and takes no slot', async () => {
    const left = (answer: Answer) => Number(/;r=(\d+)/.exec(String(answer.headers.ratelimit))?.[1]);
    const before = left(await message(ALLOWED));
    const uses = (['get', 'extend'] as const).map((name) => jest.spyOn(pair.relay.sessions, name));
    for (const path of [BOT_PATH, '/auth/login', '/auth/logout', '/auth/logout-all', '/auth/session']) {
      const answer = await preflight(ALLOWED, path);
      expect([path, answer.status]).toEqual([path, 204]);
      expect(answer.headers).not.toHaveProperty('set-cookie');
    }
    for (const use of uses) expect(use).not.toHaveBeenCalled();
    expect(left(await message(ALLOWED))).toBe(before - 1);
  });

  test.each(FOREIGN)('of the foreign origin %s gets no Access-Control header', async (origin) => {
    const answer = await preflight(origin);
    expectProblem(answer, 405, 'method_not_allowed');
    expect(corsHeaders(answer)).toEqual({});
    expect(answer.headers.vary).toMatch(/\bOrigin\b/);
  });
});

describe('the answer to a message', () => {
  test('can be read by an allowed origin with credentials, also if the message is refused', async () => {
    const answer = await message(ALLOWED);
    expect([answer.status, corsHeaders(answer)]).toEqual([200, READABLE]);
    const refused = await message(ALLOWED, { Cookie: '' });
    expectProblem(refused, 401, 'unauthenticated');
    expect(corsHeaders(refused)).toEqual(READABLE);
  });

  test.each([...FOREIGN, 'http://app.example.com'])('has no Access-Control header for %s', async (origin) => {
    expect(corsHeaders(await message(origin))).toEqual({});
  });

  test('comes for an allowed origin with the headers of the client libraries, which are not passed on', async () => {
    const headers = { 'X-API-KEY': 'evil', 'X-ASGARD-USER-IDENTITY-HINT': 'evil', 'Idempotency-Key': 'one' };
    const asked = await preflight(ALLOWED, BOT_PATH, Object.keys(headers).join());
    const allowed = String(asked.headers['access-control-allow-headers']).split(', ');
    expect(allowed).toEqual(expect.arrayContaining(Object.keys(headers)));
    expect((await message(ALLOWED, headers)).status).toBe(200);
    const { all, headers: sent } = pair.upstream.requests.at(-1) as RawRequest;
    expect([all('x-api-key'), all('x-asgard-user-identity-hint')]).toEqual([[CANARY.key], []]);
    expect(JSON.stringify(sent)).not.toContain('evil');
  });

  test('does not vary by origin, and has no Access-Control header, without ALLOWED_ORIGINS', async () => {
    const alone = await startRelay(pair.upstream.url);
    const answer = await call(alone.port, '/auth/session', { headers: { Origin: ALLOWED } });
    await alone.close();
    expect(corsHeaders(answer)).toEqual({});
    expect(answer.headers).not.toHaveProperty('vary');
  });
});

describeInChromium('a page of an allowed origin', () => {
  const chromium = oneChromium();

  test('sends the headers of CORS_HEADERS, which the relay does not pass on, and no others', async () => {
    const front = await startFakeLoadBalancer({
      answer(_req, res) {
        res.writeHead(200, { 'Content-Type': 'text/html' }).end('<p>ok');
        return true;
      },
    });
    const other = await startWith({
      ALLOWED_ORIGINS: front.url,
      CORS_HEADERS: 'X-Host-Version, x-trace',
    });
    const { page } = await chromium.open(`${front.url}/page`);
    const [name = '', value = ''] = other.cookie.split('=');
    const url = `http://127.0.0.1:${other.relay.port}`;
    await page.context().addCookies([{ name, value, url }]);
    const send = (headers: Record<string, string>) =>
      page.evaluate(
        ([address, body, more]) =>
          fetch(address, {
            method: 'POST',
            credentials: 'include',
            headers: { 'Content-Type': 'application/json', ...more },
            body,
          }).then(
            async (response) => [response.status, await response.text()],
            (error) => String(error),
          ),
        [url + BOT_PATH, MESSAGE, headers] as const,
      );
    expect(await send({ 'X-Host-Version': '7', 'X-Trace': 't' })).toEqual([200, 'data: 1\n\n']);
    const [{ all }] = other.upstream.requests as [RawRequest];
    expect(['x-host-version', 'x-trace'].flatMap(all)).toEqual([]);
    expect(await send({ 'X-Host-Version': '7', 'X-Other': 'x' })).toMatch(/TypeError/);
    expect(other.upstream.requests).toHaveLength(1);
    await other.close();
    await front.close();
  });
});
