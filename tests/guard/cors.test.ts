import { afterAll, afterEach, beforeAll, describe, expect, jest, test } from '@jest/globals';
import { type Answer, call, expectProblem } from '../support/call.ts';
import { type Pair, startPair } from '../support/pair.ts';
import { wholeStream } from '../support/raw-upstream.ts';
import { BOT_PATH, MESSAGE, startRelay } from '../support/relay.ts';

const ALLOWED = 'https://partner.example.org';
const FOREIGN = [
  'https://other.example.net',
  'null',
  'https://partner.example.org.evil.net',
  'http://partner.example.org',
  'https://PARTNER.example.org',
  '*',
];

let pair: Pair;
beforeAll(async () => {
  pair = await startPair((socket) => socket.write(wholeStream('data: 1\n\n')), {
    ALLOWED_ORIGINS: ALLOWED,
    RATE_LIMIT: '50',
    RATE_WINDOW_MS: '3600000',
  });
});
afterAll(() => pair.close());
afterEach(() => {
  jest.restoreAllMocks();
});

const preflight = (origin: string, path = BOT_PATH) =>
  call(pair.relay.port, path, {
    method: 'OPTIONS',
    headers: {
      Origin: origin,
      Cookie: pair.cookie,
      'Access-Control-Request-Method': 'POST',
      'Access-Control-Request-Headers': 'content-type,x-anything',
    },
  });

const message = (origin: string) =>
  call(pair.relay.port, BOT_PATH, {
    method: 'POST',
    body: MESSAGE,
    headers: { Origin: origin, Cookie: pair.cookie, 'Content-Type': 'application/json' },
  });

const corsHeaders = ({ headers }: Answer) =>
  Object.fromEntries(Object.entries(headers).filter(([name]) => name.startsWith('access-control-')));

describe('a preflight', () => {
  test('of an allowed origin is answered with what its page may send (G3)', async () => {
    const answer = await preflight(ALLOWED);
    expect([answer.status, answer.body]).toEqual([204, '']);
    expect(corsHeaders(answer)).toEqual({
      'access-control-allow-origin': ALLOWED,
      'access-control-allow-credentials': 'true',
      'access-control-allow-methods': 'GET, POST',
      'access-control-allow-headers': 'Content-Type, Last-Event-ID, Traceparent, X-Request-Id',
      'access-control-max-age': '600',
    });
    expect(answer.headers.vary).toMatch(/\bOrigin\b/);
  });

  test('is an OPTIONS request, whatever else a request says of itself (G3)', async () => {
    const answer = await call(pair.relay.port, '/healthz', {
      headers: { Origin: ALLOWED, 'Access-Control-Request-Method': 'POST' },
    });
    expect([answer.status, answer.body]).toEqual([200, '{"status":"ok"}']);
    expect(corsHeaders(answer)).not.toHaveProperty('access-control-allow-methods');
  });

  test('needs no session, sets no cookie and asks no store (G3)', async () => {
    const reads = jest.spyOn(pair.relay.sessions, 'get');
    const extensions = jest.spyOn(pair.relay.sessions, 'extend');
    for (const path of [BOT_PATH, '/auth/login', '/auth/logout', '/auth/logout-all', '/auth/session']) {
      const answer = await preflight(ALLOWED, path);
      expect([path, answer.status]).toEqual([path, 204]);
      expect(answer.headers).not.toHaveProperty('set-cookie');
    }
    expect(reads).not.toHaveBeenCalled();
    expect(extensions).not.toHaveBeenCalled();
  });

  test('spends no budget (G3)', async () => {
    const left = (answer: Answer) => Number(/;r=(\d+)/.exec(String(answer.headers.ratelimit))?.[1]);
    const before = left(await message(ALLOWED));
    for (let n = 0; n < 5; n += 1) await preflight(ALLOWED);
    expect(left(await message(ALLOWED))).toBe(before - 1);
  });

  test.each(FOREIGN)('of the foreign origin %s gets no Access-Control header (G3)', async (origin) => {
    const answer = await preflight(origin);
    expectProblem(answer, 405, 'method_not_allowed');
    expect(corsHeaders(answer)).toEqual({});
    expect(answer.headers.vary).toMatch(/\bOrigin\b/);
  });
});

describe('an OPTIONS request that is no preflight', () => {
  test('is another method than the route takes, for an allowed origin too', async () => {
    const answer = await call(pair.relay.port, BOT_PATH, { method: 'OPTIONS', headers: { Origin: ALLOWED } });
    expectProblem(answer, 405, 'method_not_allowed');
  });
});

describe('the answer to a message', () => {
  test('can be read by an allowed origin with credentials, and never by * (G3)', async () => {
    const answer = await message(ALLOWED);
    expect(answer.status).toBe(200);
    expect(corsHeaders(answer)).toEqual({
      'access-control-allow-origin': ALLOWED,
      'access-control-allow-credentials': 'true',
      'access-control-expose-headers': 'RateLimit, RateLimit-Policy, Retry-After, X-Request-Id, X-Trace-Id',
    });
  });

  test('that is refused can be read by an allowed origin as well (G3)', async () => {
    const answer = await call(pair.relay.port, BOT_PATH, { method: 'POST', headers: { Origin: ALLOWED } });
    expectProblem(answer, 401, 'unauthenticated');
    expect(corsHeaders(answer)).toMatchObject({ 'access-control-allow-origin': ALLOWED });
  });

  test.each([...FOREIGN, 'http://app.example.com'])(
    'has no Access-Control header for %s (G3)',
    async (origin) => {
      expect(corsHeaders(await message(origin))).toEqual({});
    },
  );
});

describe('a relay without ALLOWED_ORIGINS', () => {
  test('has no Access-Control header and does not vary by origin (G3)', async () => {
    const alone = await startRelay(pair.upstream.url);
    const answer = await call(alone.port, '/auth/session', { headers: { Origin: ALLOWED } });
    await alone.close();
    expect(corsHeaders(answer)).toEqual({});
    expect(answer.headers).not.toHaveProperty('vary');
  });
});
