import { afterAll, beforeAll, describe, expect, test } from '@jest/globals';
import { OPERATION_GROUPS, PATH_SHAPES } from '../../src/bots/bot.ts';
import type { ProblemCode, Retryable } from '../../src/errors.ts';
import { OPERATIONS, type Operation } from '../../src/relay/operations/operation-table.ts';
import { type Answer, call, expectProblem, parseAnswer } from '../harness/clients/call.ts';
import { channelIn, goodAnswer, operationRequest } from '../harness/clients/operation-requests.ts';
import {
  ALLOWED_ORIGIN,
  ORIGIN_TABLE,
  originHeaders,
  passesOriginCheck,
} from '../harness/clients/origin-table.ts';
import { rawClient } from '../harness/clients/raw-client.ts';
import { freshFolder, stopProcesses } from '../harness/relay/process.ts';
import { CANARY, startRelay, type TestRelay, USER } from '../harness/relay/relay.ts';
import type { RelayAndUpstream } from '../harness/relay/relay-and-upstream.ts';
import { startWithSandboxes } from '../harness/service/launched-sandboxes.ts';

const BASE_PATH = '/chat-api';
const MAX_BODY_BYTES = 2000;

/** A route of the relay, and a good request for it. */
interface Route {
  readonly name: string;
  readonly method: string;
  /** Without the query. */
  readonly path: string;
  readonly query: string;
  readonly headers: Readonly<Record<string, string | undefined>>;
  readonly body: string;
  /** `probe`: for load balancers; `open`: needs no session; `session`: of a session; `bot`: of a bot. */
  readonly kind: 'probe' | 'open' | 'session' | 'bot';
  readonly operation?: Operation;
  /** The largest body of JSON, if it takes one. */
  readonly maxJsonBytes?: number | undefined;
}

/** Every route of a relay with passwords. */
const ROUTES: readonly Route[] = [
  { method: 'GET', path: '/healthz', kind: 'probe' as const },
  { method: 'GET', path: '/readyz', kind: 'probe' as const },
  { method: 'GET', path: '/auth/session', kind: 'session' as const },
  { method: 'POST', path: '/auth/logout', kind: 'session' as const },
  { method: 'POST', path: '/auth/logout-all', kind: 'session' as const },
  {
    ...{ method: 'POST', path: '/auth/login', kind: 'open' as const, maxJsonBytes: 4096 },
    headers: { 'Content-Type': 'application/json' },
    body: JSON.stringify({ username: USER.name, password: CANARY.password }),
  },
  ...OPERATIONS.flatMap((operation) =>
    PATH_SHAPES.map((shape) => {
      const { path: target, headers, body = '' } = operationRequest(operation, { shape });
      const [path = '', query] = target.split('?');
      const largest = operation.carriedBy === 'message' ? MAX_BODY_BYTES : operation.maxBodyBytes;
      const { 'Content-Type': type, 'X-Request-Id': id } = headers;
      return {
        ...{ method: operation.method, path, query: query === undefined ? '' : `?${query}` },
        ...{ headers: { 'Content-Type': type, 'X-Request-Id': id }, body: String(body), operation },
        ...{ kind: 'bot' as const, maxJsonBytes: operation.channel === 'json' ? largest : undefined },
      };
    }),
  ),
].map((route) => ({ query: '', headers: {}, body: '', name: `${route.method} ${route.path}`, ...route }));
const BELOW_BASE = ROUTES.map((route) => ({ ...route, path: BASE_PATH + route.path }));
const isBot = ({ kind }: Route) => kind === 'bot';
const isOpen = ({ kind }: Route) => kind !== 'probe';
const takesJson = ({ maxJsonBytes }: Route) => maxJsonBytes !== undefined;
const checksOrigin = ({ kind, method }: Route) => kind === 'bot' || (kind !== 'probe' && method === 'POST');
const needsSession = (route: Route) => checksOrigin(route) && route.kind !== 'open';
const MESSAGE = BELOW_BASE.find(({ operation }) => operation?.carriedBy === 'message') as Route;

/** What is other than in a good request. Header lines replace those of the same name; undefined leaves one out. */
interface Change {
  readonly method?: string;
  readonly path?: string;
  readonly query?: string;
  readonly version?: string;
  readonly headers?: Readonly<Record<string, string | undefined>>;
  /** Whole header lines, which are added as they are. */
  readonly lines?: readonly string[];
  readonly body?: string | Buffer;
}

/** The answer to a request to `route` with this change on a connection of its own, and all that has come on that. */
async function answerTo(
  port: number,
  cookie: string,
  route: Route,
  change: Change = {},
): Promise<Answer & { readonly text: string }> {
  const { method, path, query, version = 'HTTP/1.1' } = { ...route, ...change };
  const body = Buffer.from((change.body ?? route.body) as string);
  const length = body.length > 0 || method !== 'GET' ? String(body.length) : undefined;
  const headers = { Host: 'app.example.com', Cookie: cookie, 'Content-Length': length };
  const lines = Object.entries({ ...headers, ...route.headers, ...change.headers }).flatMap(
    ([name, value]) => (value === undefined ? [] : [`${name}: ${value}`]),
  );
  const head = [
    ...[`${method} ${path}${query} ${version}`, ...lines, 'Connection: close'],
    ...[...(change.lines ?? []), '\r\n'],
  ];
  const client = rawClient(port, Buffer.concat([Buffer.from(head.join('\r\n'), 'latin1'), body]));
  await client.closed;
  return { ...parseAnswer(client.text()), text: client.text() };
}

/** A request that is refused wherever it comes, or at the routes `at`, before anything is sent to the service. */
interface Refusal {
  readonly change: Change | ((route: Route) => Change);
  readonly status: number;
  readonly code: ProblemCode;
  readonly retryable?: Retryable;
  readonly at?: (route: Route) => boolean;
}
type Table = Readonly<Record<string, Refusal>>;
const changeOf = ({ change }: Refusal, route: Route) =>
  typeof change === 'function' ? change(route) : change;

/** Rows that have the status, the code and the routes in common. */
const rows = (common: Omit<Refusal, 'change'>, changes: Readonly<Record<string, Refusal['change']>>): Table =>
  Object.fromEntries(Object.entries(changes).map(([what, change]) => [what, { ...common, change }]));
const lines = (...of: string[]): Change => ({
  headers: { 'Content-Length': undefined },
  lines: of,
  body: '{"a":1}',
});
const hosts = (...of: string[]): Change => ({ headers: { Host: undefined }, lines: of });
const paths = (change: (path: string) => string) => (route: Route) => ({ path: change(route.path) });
const headers = (of: Change['headers']): Change => ({ headers: of ?? {} });

const NOT_HTTP: Table = {
  ...rows(
    { status: 400, code: 'bad_request' },
    {
      'two lengths that differ': lines('Content-Length: 7', 'Content-Length: 3'),
      'a list of lengths': lines('Content-Length: 7, 7'),
      'a length with a sign': lines('Content-Length: +7'),
      'a length and chunks': lines('Content-Length: 7', 'Transfer-Encoding: chunked'),
      'a last encoding that is not chunked': lines('Transfer-Encoding: chunked, gzip'),
      'a folded length': lines('Content-Length:\r\n 7'),
      'a space before a colon': lines('Content-Length : 7'),
      'a NUL in a header': lines('Content-Length: 7', 'X-Nul: a\0b'),
      'a bare CR in a header': lines('Content-Length: 7', 'X-Cr: a\rb'),
      'no Host': hosts(),
      'two Hosts that are the same': hosts('Host: app.example.com', 'host: app.example.com'),
      'two Hosts of which one is empty': hosts('Host:', 'HOST: app.example.com'),
      'a backslash': paths((path) => path.replace(/.$/, '\\$&')),
      'a NUL': paths((path) => `${path}\0`),
      'a space': paths((path) => `${path} x`),
      'a byte that is not ASCII': paths((path) => `${path}\xe9`),
      'a fragment': ({ query }) => ({ query: `${query}#x` }),
      'absolute-form': paths((path) => `http://app.example.com${path}`),
      'absolute-form without a host': paths((path) => `file://${path}`),
      'no slash at the beginning': paths((path) => path.slice(1)),
      'an asterisk with OPTIONS': { method: 'OPTIONS', path: '*', query: '' },
      'authority-form with CONNECT': { method: 'CONNECT', path: '169.254.169.254:80', query: '' },
      'authority-form': paths(() => '169.254.169.254:80'),
      'a method in lower case': { method: 'post' },
      'an unknown method': { method: 'SMUGGLE' },
      'HTTP/2.0': { version: 'HTTP/2.0' },
      'HTTP/0.9': { version: 'HTTP/0.9' },
      'RTSP/1.0': { version: 'RTSP/1.0' },
      'ICE/1.0': { version: 'ICE/1.0' },
      'HTTP/2 without TLS': { method: 'PRI', path: '*', query: '', version: 'HTTP/2.0' },
    },
  ),
  ...rows(
    { status: 431, code: 'headers_too_large' },
    {
      'a header of 20 KiB': { lines: [`X-Large: ${'x'.repeat(20_000)}`] },
      'a path of 20 KiB': { path: `/${'x'.repeat(20_000)}` },
    },
  ),
};
const lastAs = (change: (letter: string) => string) => paths((path) => path.replace(/.$/, change));
const NOT_FOUND: Table = {
  ...rows(
    { status: 404, code: 'not_found' },
    {
      'the root': { path: '/' },
      'a path that is none': { path: '/favicon.ico' },
      'a part of a path': { path: '/auth' },
      'a slash at the end': paths((path) => `${path}/`),
      'an escaped slash at the end': paths((path) => `${path}%2f`),
      'a sub-path': paths((path) => `${path}/more`),
      'two slashes before': paths((path) => `/${path}`),
      'a .. that resolves to the path': paths((path) => `/x/..${path}`),
      'another case of one letter': lastAs((letter) => letter.toUpperCase()),
      'an escaped letter': lastAs((letter) => `%${letter.charCodeAt(0).toString(16)}`),
    },
  ),
  ...rows(
    { status: 404, code: 'not_found', at: isBot },
    {
      'two slashes within': paths((path) => path.replace(/(.)\//, '$1//')),
      'a broken escape': paths((path) => path.replace('helper', 'helper%zz')),
      'an escape that is no UTF-8': paths((path) => path.replace('helper', 'helper%c3%28')),
      'an empty namespace': paths((path) => path.replace('acme', '')),
    },
  ),
};
const OUTSIDE = rows(
  { status: 404, code: 'not_found' },
  {
    'a path outside of BASE_PATH': paths((path) => path.slice(BASE_PATH.length)),
    'BASE_PATH alone': { path: BASE_PATH },
    'BASE_PATH twice': paths((path) => BASE_PATH + path),
    'BASE_PATH in another case': paths((path) => path.replace(BASE_PATH, '/Chat-Api')),
  },
);
const named = (names: readonly string[], place = 'helper'): Table =>
  rows(
    { status: 404, code: 'unknown_bot', at: isBot },
    Object.fromEntries(
      names.map((name) => [`${name} in place of ${place}`, paths((path) => path.replace(place, name))]),
    ),
  );
/** Names that are refused even where every bot is allowed. */
const NO_BOTS: Table = {
  ...named(['..', '%252e%252e', '..%5c..'], 'acme'),
  ...named(['.', '%2E%2E', 'helper%2fmessage', 'helper%25', 'helper%00', 'helper%0d%0aX-Evil:1', 'x%7f']),
  // Invisible characters.
  ...named([...'\x80\u00ad\u200b\u2028\u202e\ufeff'].map((one) => `a${encodeURIComponent(one)}b`)),
};
const OTHER_BOTS: Table = { ...named(['Helper', 'nobody', '*']), ...named(['acme2'], 'acme') };
const SHAPED: Table = {
  ...rows(
    { status: 401, code: 'unauthenticated', at: needsSession },
    {
      'without a cookie': headers({ Cookie: '' }),
      'with an altered cookie': headers({ Cookie: 'bot_relay_session=evil' }),
    },
  ),
  ...rows(
    { status: 403, code: 'cross_site_request', at: checksOrigin },
    {
      'from another site': headers({ 'Sec-Fetch-Site': 'cross-site' }),
      'of a foreign origin': headers({ Origin: 'https://other.example.net' }),
    },
  ),
  ...rows(
    { status: 501, code: 'operation_not_enabled', at: isBot },
    {
      'to a bot without its group': ({ path, operation }) => ({
        path: path.replace('helper', `no-${operation?.group}`),
      }),
    },
  ),
  ...rows(
    { status: 415, code: 'unsupported_media_type', at: takesJson },
    {
      'as text': headers({ 'Content-Type': 'text/plain' }),
      'as a form': headers({ 'Content-Type': 'application/x-www-form-urlencoded' }),
      'without a type': headers({ 'Content-Type': undefined }),
      'with a type that begins like JSON': headers({ 'Content-Type': 'application/jsonp' }),
      'with JSON as a parameter': headers({ 'Content-Type': 'text/plain; application/json' }),
      'with two types': headers({ 'Content-Type': 'text/plain, application/json' }),
      'with two encodings': headers({ 'Content-Encoding': 'identity, gzip' }),
    },
  ),
  ...rows(
    { status: 400, code: 'invalid_json', at: takesJson },
    {
      'with JSON that is not complete': { body: '{"text":' },
      'with JSON and more': { body: '{} {}' },
      'with no bytes': { body: '' },
      'with NaN': { body: 'NaN' },
      'with invalid UTF-8 in a string': { body: Buffer.from([0x22, 0xc3, 0x28, 0x22]) },
      'with UTF-16': { body: Buffer.from('{}', 'utf16le') },
      'with a byte order mark': { body: '\ufeff{}' },
    },
  ),
  ...rows(
    { status: 413, code: 'body_too_large', at: takesJson },
    { 'with too large a body': ({ maxJsonBytes = 0 }) => ({ body: `"${'x'.repeat(maxJsonBytes)}"` }) },
  ),
  ...rows(
    { status: 421, code: 'unknown_host', at: isOpen },
    { 'for another host': headers({ Host: 'evil.example' }) },
  ),
};
/** The problems of a request that is wrong in several ways are judged in this order. */
const IN_ORDER = [
  ...['for another host', 'from another site', 'without a cookie', 'nobody in place of helper'],
  ...['as text', 'with NaN'],
].map((what) => ({ ...SHAPED, ...OTHER_BOTS })[what] as Refusal);

const PROTECTION = {
  'content-security-policy': "default-src 'none';frame-ancestors 'none';base-uri 'none';form-action 'none'",
  'x-content-type-options': 'nosniff',
  'x-frame-options': 'DENY',
  'referrer-policy': 'no-referrer',
  'cross-origin-resource-policy': 'same-origin',
};

let pair: RelayAndUpstream;
/** The same service behind a relay for all bots. */
let open: TestRelay;
let openCookie: string;
beforeAll(async () => {
  const without = OPERATION_GROUPS.map((group) => [
    `acme/no-${group}`,
    { operations: OPERATION_GROUPS.filter((each) => each !== group) },
  ]);
  const environment = {
    BOTS_FILE: `${freshFolder({ 'bots.json': JSON.stringify(Object.fromEntries(without)) })}/bots.json`,
    OPERATIONS: OPERATION_GROUPS.join(),
    ALLOWED_ORIGINS: ALLOWED_ORIGIN,
    MAX_BODY_BYTES: String(MAX_BODY_BYTES),
    RATE_LIMIT: '50',
    RATE_WINDOW_MS: '3600000',
    MAX_STREAMS_PER_USER: '1',
  };
  const BOTS = ['acme/helper', ...without.map(([name]) => name)].join();
  pair = await startWithSandboxes(
    (socket, request) => {
      const [method, target = ''] = request.requestLine.split(' ');
      const at = ROUTES.find((route) => route.path === target.split('?')[0] && route.method === method);
      if (at?.operation) socket.write(goodAnswer(at.operation, channelIn(request)));
    },
    { ...environment, BOTS, BASE_PATH, ALLOWED_HOSTS: 'app.example.com,127.0.0.1' },
  );
  open = await startRelay(pair.upstream.url, {
    ...environment,
    BOTS: '*/*',
    PUBLIC_URL: 'https://app.example.com',
  });
  openCookie = await open.signIn();
});
afterAll(async () => {
  await open.close();
  await pair.close();
  await stopProcesses();
});

/** Expects that each of `routes` refuses; all that is wrong is named at once. */
async function expectRefused(
  routes: readonly Route[],
  refusal: Refusal,
  at: { port: number; cookie: string } = { port: pair.relay.port, cookie: pair.cookie },
) {
  const { status, code, retryable = false } = refusal;
  const judged = routes.filter(refusal.at ?? (() => true));
  const opened = pair.upstream.sockets.length;
  const faults = await Promise.all(
    judged.map(async (route) => {
      try {
        const answer = await answerTo(at.port, at.cookie, route, changeOf(refusal, route));
        expectProblem(answer, status, code, { retryable });
        expect(answer.text.match(/HTTP\/1\.1 \d+/g)).toHaveLength(1);
        expect(answer.headers['x-content-type-options']).toBe('nosniff');
        for (const name of ['set-cookie', 'ratelimit', 'x-powered-by', 'etag'])
          expect(answer.headers).not.toHaveProperty(name);
        // What is no request gets an answer that has not gone through the application.
        if (status !== 400 && status !== 431) expect(answer.headers).toMatchObject(PROTECTION);
        return [];
      } catch (error) {
        return [`${route.name}: ${error}`];
      }
    }),
  );
  expect(judged).not.toEqual([]);
  expect(faults.flat()).toEqual([]);
  expect(pair.upstream.sockets.length).toBe(opened);
}

describe('a request to any route is refused, and nothing is sent:', () => {
  test.each(Object.entries({ ...NOT_HTTP, ...NOT_FOUND, ...NO_BOTS }))('%s', (_what, refusal) =>
    expectRefused(ROUTES, refusal, { port: open.port, cookie: openCookie }),
  );

  test.each(Object.entries({ ...OTHER_BOTS, ...OUTSIDE, ...SHAPED }))(
    '%s, below a base path and with a list of bots',
    (_what, refusal) => expectRefused(BELOW_BASE, refusal),
  );

  test('for the first reason, if there are several', async () => {
    for (const [n, second] of IN_ORDER.slice(1).entries()) {
      const first = IN_ORDER[n] as Refusal;
      const change = (route: Route) => {
        const [one, other] = [changeOf(first, route), changeOf(second, route)];
        return { ...other, ...one, headers: { ...other.headers, ...one.headers } };
      };
      const at = (route: Route) => [first, second].every((each) => each.at?.(route));
      await expectRefused(BELOW_BASE, { ...first, change, at });
    }
  });

  test('any origin that is not trusted, and no other one', async () => {
    const judged = BELOW_BASE.filter(({ path }) => /\/(login|logout|sse)$/.test(path));
    const faults = await Promise.all(
      ORIGIN_TABLE.flatMap(([site, origin]) =>
        judged.map(async (route) => {
          const passes = passesOriginCheck(site, origin);
          // What passes gets the next refusal.
          const next = passes ? { Cookie: '', 'Content-Type': 'text/plain' } : {};
          const change = { headers: { ...originHeaders(site, origin), ...next } };
          const { status } = await answerTo(pair.relay.port, pair.cookie, route, change);
          const expected = passes ? (route.kind === 'open' ? 415 : 401) : 403;
          return status === expected ? [] : [[route.name, site, origin, status]];
        }),
      ),
    );
    expect(faults.flat()).toEqual([]);
  });

  test('a method that its path does not take, which is told', async () => {
    const methods = ['GET', 'HEAD', 'POST', 'PUT', 'DELETE', 'PATCH', 'OPTIONS', 'TRACE', 'PROPFIND'];
    for (const [path, routes] of Map.groupBy(BELOW_BASE, (route) => route.path)) {
      const [route] = routes as [Route];
      const allowed = methods.filter((method) =>
        routes.some(
          (one) => one.method === method || (method === 'HEAD' && one.method === 'GET' && !isBot(one)),
        ),
      );
      for (const method of methods.filter((one) => !allowed.includes(one))) {
        const answer = await answerTo(pair.relay.port, pair.cookie, route, { method });
        expect([path, method, answer.status, answer.headers.allow]).toEqual([
          path,
          method,
          405,
          allowed.join(', '),
        ]);
        if (method !== 'HEAD') expectProblem(answer, 405, 'method_not_allowed', { retryable: false });
      }
    }
    expect(pair.upstream.sockets).toHaveLength(0);
  });

  test('and no refusal takes a slot of a budget', async () => {
    const answer = await answerTo(pair.relay.port, pair.cookie, MESSAGE);
    expect(answer.headers.ratelimit).toMatch(/^"endpoint";r=49;/);
  });

  test('and without a fault, each is served, with the same protection', async () => {
    const preflight = {
      method: 'OPTIONS',
      headers: { Origin: ALLOWED_ORIGIN, 'Access-Control-Request-Method': 'POST' },
    };
    for (const [route, change] of [
      ...BELOW_BASE.map((each) => [each] as const),
      [MESSAGE, preflight] as const,
    ]) {
      const {
        status,
        headers: got,
        text,
      } = await answerTo(pair.relay.port, await pair.relay.signIn(), route, change);
      // No run was begun that this one could ask for.
      const expected = route.operation?.carriedBy === 'run' ? /^410$/ : /^20[04]$/;
      expect([route.name, String(status)]).toEqual([route.name, expect.stringMatching(expected)]);
      if (!isBot(route) || route === MESSAGE)
        expect([route.name, got]).toEqual([route.name, expect.objectContaining(PROTECTION)]);
      expect(got['cache-control']).toBe(
        got['content-type'] === 'text/event-stream' ? 'no-cache, no-transform' : 'no-store',
      );
      for (const name of ['x-powered-by', 'etag', 'strict-transport-security'])
        expect(got).not.toHaveProperty(name);
      // The name is written as its specification has it.
      expect(text).toContain('\r\nContent-Security-Policy: ');
    }
    // Where PUBLIC_URL is https.
    const { headers: secure } = await call(open.port, '/healthz');
    expect(secure['strict-transport-security']).toBe('max-age=31536000');
  });
});

describe.each<[string, Record<string, string>, (relay: TestRelay) => unknown, Omit<Refusal, 'change'>]>([
  [
    'while the relay drains',
    {},
    (relay) => relay.parts.lifecycle.enter('draining'),
    { status: 503, code: 'draining', retryable: 'new message' },
  ],
  [
    'of an address that has sent too many requests',
    { CLIENT_LIMIT_PER_ADDRESS: '1' },
    () => {},
    { status: 429, code: 'too_many_attempts', retryable: 'new message' },
  ],
])('every request %s', (_when, environment, begin, refusal) => {
  let relay: TestRelay;
  let cookie: string;
  beforeAll(async () => {
    const all = { ALLOWED_ORIGINS: ALLOWED_ORIGIN, BASE_PATH, ...environment };
    relay = await startRelay(pair.upstream.url, all);
    cookie = await relay.signIn();
    begin(relay);
  });
  afterAll(() => relay.close());

  test('is refused, but for probes, which use no session', async () => {
    const uses = await relay.sessionUses();
    await expectRefused(BELOW_BASE, { ...refusal, change: {}, at: isOpen }, { port: relay.port, cookie });
    for (const route of BELOW_BASE.filter(({ kind }) => kind === 'probe')) {
      const answer = await answerTo(relay.port, cookie, route);
      expect(answer.headers).not.toHaveProperty('set-cookie');
      const isReady = refusal.code !== 'draining' || route.path.endsWith('healthz');
      expect(answer.status).toBe(isReady ? 200 : 503);
    }
    // The session is asked for together with the limit.
    if (refusal.code === 'draining') expect(await relay.sessionUses()).toBe(uses);
  });

  test('tells a page of an allowed origin when to come again', async () => {
    const Origin = ALLOWED_ORIGIN;
    const refused = await answerTo(relay.port, cookie, MESSAGE, { headers: { Origin } });
    expect(refused.headers).toMatchObject({
      'retry-after': expect.stringMatching(/^([1-9]|[1-5]\d|60)$/),
      'access-control-allow-origin': ALLOWED_ORIGIN,
      'access-control-allow-credentials': 'true',
      'access-control-expose-headers': expect.stringContaining('Retry-After'),
    });
    const preflight = { method: 'OPTIONS', headers: { Origin, 'Access-Control-Request-Method': 'POST' } };
    expect((await answerTo(relay.port, cookie, MESSAGE, preflight)).status).toBe(204);
  });
});
