import { afterAll, afterEach, beforeAll, describe, expect, jest, test } from '@jest/globals';
import type { Request, Response } from 'express';
import fc from 'fast-check';
import { knownHost } from '../../src/guard/known-host.ts';
import { type Answer, call, expectNobody, expectProblem, parseAnswer } from '../harness/clients/call.ts';
import { rawClient } from '../harness/clients/raw-client.ts';
import { startProcess, stopProcesses } from '../harness/relay/process.ts';
import { BOT_PATH, CANARY, MESSAGE, startRelay } from '../harness/relay/relay.ts';
import { type RelayAndUpstream, startRelayAndUpstream } from '../harness/relay/relay-and-upstream.ts';
import { codeThrownBy } from '../harness/relay/thrown-problem.ts';
import { type RawRequest, wholeStream } from '../harness/service/raw-upstream.ts';

const ALLOWED = 'https://partner.example.org';
const FOREIGN = [
  ...[
    'https://other.example.net',
    'null',
    'https://partner.example.org.evil.net',
    '*',
    'http://app.example.com',
  ],
  ...['http://partner.example.org', 'https://PARTNER.example.org'],
];

const startWith = (environment: Record<string, string>) =>
  startRelayAndUpstream((socket) => socket.write(wholeStream('data: 1\n\n')), environment);
let pair: RelayAndUpstream;
beforeAll(async () => {
  pair = await startWith({ ALLOWED_ORIGINS: ALLOWED, RATE_LIMIT: '50', RATE_WINDOW_MS: '3600000' });
});
afterAll(() => pair.close());
afterEach(() => {
  jest.restoreAllMocks();
});

const preflight = (origin: string, path = BOT_PATH, port = pair.relay.port) =>
  call(port, path, {
    method: 'OPTIONS',
    headers: {
      ...{ Origin: origin, Cookie: pair.cookie, 'Access-Control-Request-Method': 'POST' },
      'Access-Control-Request-Headers': 'content-type,x-anything',
    },
  });
const message = (origin: string, headers: Record<string, string> = {}, port = pair.relay.port) =>
  call(port, BOT_PATH, {
    method: 'POST',
    body: MESSAGE,
    headers: { Origin: origin, Cookie: pair.cookie, 'Content-Type': 'application/json', ...headers },
  });
const corsHeaders = ({ headers }: Answer) =>
  Object.fromEntries(Object.entries(headers).filter(([name]) => name.startsWith('access-control-')));

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
    const uses = await pair.relay.sessionUses();
    for (const path of [BOT_PATH, '/auth/login', '/auth/logout', '/auth/logout-all', '/auth/session']) {
      const answer = await preflight(ALLOWED, path);
      expect([path, answer.status]).toEqual([path, 204]);
      expect(answer.headers).not.toHaveProperty('set-cookie');
    }
    expect(await pair.relay.sessionUses()).toBe(uses);
    expect(left(await message(ALLOWED))).toBe(before - 1);
  });
});

describe('an answer', () => {
  test('can be read by an allowed origin with credentials, also if the message is refused', async () => {
    const readable = {
      'access-control-allow-origin': ALLOWED,
      'access-control-allow-credentials': 'true',
      'access-control-expose-headers':
        'Content-Disposition, Content-Range, RateLimit, RateLimit-Policy, Retry-After, X-Request-Id, X-Total-Bytes, X-Trace-Id, X-Truncated',
    };
    const answer = await message(ALLOWED);
    expect([answer.status, corsHeaders(answer)]).toEqual([200, readable]);
    const refused = await message(ALLOWED, { Cookie: '' });
    expectProblem(refused, 401, 'unauthenticated');
    expect(corsHeaders(refused)).toEqual(readable);
  });

  test.each(FOREIGN)(
    'has no Access-Control header for the foreign origin %s, nor has a preflight',
    async (origin) => {
      expect(corsHeaders(await message(origin))).toEqual({});
      const asked = await preflight(origin);
      expectProblem(asked, 405, 'method_not_allowed');
      expect(corsHeaders(asked)).toEqual({});
      expect(asked.headers.vary).toMatch(/\bOrigin\b/);
    },
  );

  test('comes for an allowed origin with the headers of the client libraries, which are not passed on', async () => {
    const headers = { 'X-API-KEY': 'evil', 'X-ASGARD-USER-IDENTITY-HINT': 'evil', 'Idempotency-Key': 'one' };
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

test('a page of an allowed origin may send the headers of CORS_HEADERS, which are not passed on', async () => {
  const other = await startWith({ ALLOWED_ORIGINS: ALLOWED, CORS_HEADERS: 'X-Host-Version, x-trace' });
  const at = other.relay.port;
  const asked = await preflight(ALLOWED, BOT_PATH, at);
  expect(asked.headers['access-control-allow-headers']).toMatch(/, X-Host-Version, x-trace$/);
  const headers = { Cookie: other.cookie, 'X-Host-Version': '7', 'X-Trace': 't' };
  expect((await message(ALLOWED, headers, at)).status).toBe(200);
  const { all } = other.upstream.requests.at(-1) as RawRequest;
  expect(['x-host-version', 'x-trace'].flatMap(all)).toEqual([]);
  await other.close();
});

describe('the name of the host in a request', () => {
  const judge = knownHost({
    names: ['demo.test', 'bot_relay_1', '192.168.1.7', '[fd00::7]'],
    loopback: true,
    exceptPaths: ['/healthz'],
  });
  const codeFor = (host: string) =>
    codeThrownBy(() => judge({ headers: { host }, path: '/x' } as Request, {} as Response, () => {}));
  const anyCase = (text: string) =>
    fc
      .array(fc.boolean(), { minLength: text.length, maxLength: text.length })
      .map((upper) => [...text].map((one, n) => (upper[n] ? one.toUpperCase() : one)).join(''));
  const port = fc.oneof(
    fc.constantFrom('', ':'),
    fc.nat(65_535).map((n) => `:${n}`),
  );

  test('is known in any case, with any port, and in any form of an address', () => {
    const named = fc
      .tuple(
        fc
          .constantFrom('demo.test', 'bot_relay_1', 'localhost', 'app.localhost', 'a.b.localhost')
          .chain(anyCase),
        fc.constantFrom('', '.'),
      )
      .map((of) => of.join(''));
    const address = fc.oneof(
      fc.constantFrom('[::1]', '[0:0:0:0:0:0:0:1]', '[0:0::0.0.0.1]', '[fd00::7]', '[FD00:0:0::0007]'),
      fc.constantFrom('192.168.1.7', '127.1'),
      fc.tuple(fc.nat(255), fc.nat(255), fc.nat(255)).map((of) => `127.${of.join('.')}`),
    );
    fc.assert(
      fc.property(fc.oneof(named, address), port, (name, at) => {
        expect([name + at, codeFor(name + at)]).toEqual([name + at, 'none']);
      }),
    );
  });

  const HOSTS = [
    'localhost',
    'demo.test',
    '127.0.0.1',
    '[::1]',
    'evil.example',
    '0.0.0.0',
    '10.0.0.1',
    '[::2]',
  ];
  const JOINTS = [
    '',
    '',
    '.',
    '..',
    ':',
    ':3000',
    '@',
    '#',
    '/',
    '?',
    '\\',
    '%',
    ' ',
    ', ',
    '-',
    'http://',
    'x',
  ];
  const isKnown = (name: string) =>
    /^(demo\.test|(.*\.)?localhost|127\.0\.0\.1|\[::1\])$/.test(name.replace(/\.$/, ''));

  test('is not known if any parser of a URL could find another one in it', () =>
    fc.assert(
      fc.property(
        fc.array(fc.oneof(fc.constantFrom(...HOSTS), fc.constantFrom(...JOINTS)), { maxLength: 5 }),
        (parts) => {
          const host = parts.join('');
          if (codeFor(host) === 'unknown_host') return;
          expect(host).toMatch(/^[\w.[\]-]+(:\d*)?$|^\[::1\](:\d*)?$/);
          expect([host, isKnown(URL.parse(`http://${host}`)?.hostname ?? '')]).toEqual([host, true]);
        },
      ),
      { numRuns: 2000 },
    ));

  test.each(['evil-localhost', '128.0.0.1', '[fe80::1]', '', '[::1%25lo]', 'local%68ost', 'localhost:port'])(
    'is not known: "%s"',
    (host) => expect(codeFor(host)).toBe('unknown_host'),
  );

  /** Sends a request with this head on a new connection; returns its answer. */
  async function raw(at: number, line: string, ...headers: string[]): Promise<Answer> {
    const client = rawClient(at, `${[line, ...headers, 'Connection: close'].join('\r\n')}\r\n\r\n`);
    await client.closed;
    return parseAnswer(client.text());
  }
  const ask = (at: number, host: string, path = '/auth/session', ...more: string[]) =>
    raw(at, `GET ${path} HTTP/1.1`, `Host: ${host}`, ...more);

  test('must be the own one or one of ALLOWED_HOSTS in the demo, but not of probes', async () => {
    const environment = {
      PORT: '0',
      PUBLIC_URL: 'http://Demo.Test:8080',
      ALLOWED_HOSTS: 'my-laptop.local,fd00::7',
      ALLOWED_ORIGINS: 'http://partner.example',
    };
    const at = await startProcess({ environment }).listening();
    for (const host of ['localhost', '127.0.0.1', 'demo.test', 'my-laptop.local:3000', '[fd00::7]'])
      expectNobody(await ask(at, host));
    const preflight = ['Origin: http://partner.example', 'Access-Control-Request-Method: POST'];
    for (const line of [
      'GET / HTTP/1.1',
      'GET / HTTP/1.0',
      'GET /chat.js HTTP/1.1',
      'OPTIONS /auth/login HTTP/1.1',
    ]) {
      const refused = await raw(at, line, 'Host: evil.example:3000', ...preflight);
      expect(expectProblem(refused, 421, 'unknown_host').detail).toMatch(/PUBLIC_URL.*ALLOWED_HOSTS/);
    }
    const allowed = await raw(at, 'OPTIONS /auth/login HTTP/1.1', 'Host: localhost', ...preflight);
    expect(allowed).toMatchObject({ status: 204 });
    const claims = ['X-Forwarded-Host: localhost', 'Forwarded: host=localhost', 'X-Host: localhost'];
    expectProblem(await ask(at, 'evil.example', '/auth/session', ...claims), 421, 'unknown_host');
    // No browser uses HTTP/1.0.
    expectNobody(await raw(at, 'GET /auth/session HTTP/1.0'));
    for (const path of ['/healthz', '/readyz', '/healthz?x=1'])
      expect(await ask(at, '10.0.0.1:3000', path)).toMatchObject({ status: 200 });
    // A sign-in from another machine: over http, browsers send Sec-Fetch-Site only to loopback addresses.
    const own = { Host: 'demo.test:8080', Origin: 'http://demo.test:8080' };
    const headers = { ...own, 'Content-Type': 'application/json' };
    const body = JSON.stringify({ username: 'demo', password: 'demo' });
    expect(await call(at, '/auth/login', { method: 'POST', headers, body })).toMatchObject({ status: 200 });
    await stopProcesses();
  });

  test('may be any with a real bot service if ALLOWED_HOSTS is not set', async () => {
    for (const host of ['evil.example', 'app.example.com', '10.0.0.1', ''])
      expectNobody(await ask(pair.relay.port, host));
  });

  test('must be the own one or one of ALLOWED_HOSTS if that is set, else the request is refused without a store', async () => {
    const relay = await startRelay(pair.upstream.url, {
      ALLOWED_HOSTS: 'internal.example,127.0.0.1',
      BASE_PATH: '/chat-api',
    });
    const cookie = `Cookie: ${await relay.signIn()}`;
    const uses = await relay.sessionUses();
    for (const host of ['evil.example', 'localhost', '127.0.0.2', '']) {
      const answer = await raw(relay.port, `POST /chat-api${BOT_PATH} HTTP/1.1`, `Host: ${host}`, cookie);
      expectProblem(answer, 421, 'unknown_host');
    }
    expect(await relay.sessionUses()).toBe(uses);
    for (const host of ['internal.example:3000', 'APP.example.com'])
      expect(await ask(relay.port, host, '/chat-api/auth/session', cookie)).toMatchObject({ status: 200 });
    for (const path of ['/chat-api/healthz', '/chat-api/readyz'])
      expect(await ask(relay.port, '10.0.0.1', path)).toMatchObject({ status: 200 });
    expectProblem(await ask(relay.port, '10.0.0.1', '/healthz'), 421, 'unknown_host');
    const line = await relay.logLine(({ outcome }) => outcome === 'unknown_host');
    expect(line).toMatchObject({ route: 'none', status: 421 });
    await relay.close();
  });
});
