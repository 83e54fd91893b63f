import { afterAll, beforeAll, describe, expect, jest, test } from '@jest/globals';
import fc from 'fast-check';
import { OPERATION_GROUPS } from '../../src/bots/bot.ts';
import { expectProblem } from '../harness/clients/call.ts';
import { channelIn, goodAnswer } from '../harness/clients/operation-requests.ts';
import {
  ALLOWED_ORIGIN,
  ORIGIN_TABLE,
  originHeaders,
  passesOriginCheck,
} from '../harness/clients/origin-table.ts';
import {
  BASE_PATH,
  foreignHost,
  IN_ORDER,
  isOfBot,
  NO_BOTS,
  NOT_FOUND,
  NOT_HTTP,
  OTHER_BOTS,
  OUTSIDE,
  PROTECTION,
  type Refusal,
  SHAPED,
} from '../harness/clients/refused-requests.ts';
import { answerTo, bytesOf, type Route, routesOf } from '../harness/clients/routes.ts';
import { freshFolder, stopProcesses } from '../harness/relay/process.ts';
import { startRelay, type TestRelay } from '../harness/relay/relay.ts';
import type { RelayAndUpstream } from '../harness/relay/relay-and-upstream.ts';
import { startWithSandboxes } from '../harness/service/launched-sandboxes.ts';

const MAX_BODY_BYTES = 2000;
const ROUTES = routesOf(MAX_BODY_BYTES);
const BELOW_BASE = ROUTES.map((route) => ({ ...route, path: BASE_PATH + route.path }));
const changeOf = ({ change }: Refusal, route: Route) =>
  typeof change === 'function' ? change(route) : change;

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
      const [, shape, path] = /^\w+ (.*\/bot-provider\/helper\/)([^ ?]*)/.exec(request.requestLine) ?? [];
      const [method] = request.requestLine.split(' ');
      const at = ROUTES.find((route) => route.path === `${shape}${path}` && route.method === method);
      if (at?.operation) socket.write(goodAnswer(at.operation, channelIn(request)));
    },
    { ...environment, BOTS, BASE_PATH, ALLOWED_HOSTS: 'app.example.com,127.0.0.1' },
  );
  open = await startRelay(pair.upstream.url, { ...environment, BOTS: '*/*' });
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
  at: { port: number; cookie: string },
) {
  const { status, code, retryable = false } = refusal;
  const judged = routes.filter(refusal.at ?? (() => true));
  const opened = pair.upstream.sockets.length;
  const faults = await Promise.all(
    judged.map(async (route) => {
      try {
        const answer = await answerTo(at.port, bytesOf(route, at.cookie, changeOf(refusal, route)));
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

const inList = (_what: string, refusal: Refusal) =>
  expectRefused(BELOW_BASE, refusal, { port: pair.relay.port, cookie: pair.cookie });

describe('a request to any route is refused, and nothing is sent:', () => {
  test.each(Object.entries({ ...NOT_HTTP, ...NOT_FOUND, ...NO_BOTS }))('%s', (_what, refusal) =>
    expectRefused(ROUTES, refusal, { port: open.port, cookie: openCookie }),
  );

  test.each(Object.entries({ ...NO_BOTS, ...OTHER_BOTS, ...OUTSIDE, ...SHAPED }))(
    '%s, below a base path and with a list of bots',
    inList,
  );

  test('a host that is not on the list', () => inList('', foreignHost));

  test('for the first reason, if there are several', async () => {
    const tries = fc.sample(
      fc.record({
        route: fc.constantFrom(...BELOW_BASE),
        wrong: fc.subarray([...IN_ORDER], { minLength: 2 }),
      }),
      { numRuns: 200, seed: 7 },
    );
    const judged = tries.flatMap(({ route, wrong }) => {
      const those = wrong.filter(({ at = () => true }) => at(route));
      return those.length < 2 ? [] : [{ route, those }];
    });
    expect(judged.length).toBeGreaterThan(50);
    for (const { route, those } of judged) {
      const changes = those.map((one) => changeOf(one, route));
      const headers = Object.assign({}, ...changes.map((change) => change.headers));
      const change = Object.assign({}, ...changes, { headers });
      await inList('', { ...(those[0] as Refusal), change, at: (one) => one === route });
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
          const { status } = await answerTo(pair.relay.port, bytesOf(route, pair.cookie, change));
          const expected = passes ? (route.kind === 'open' ? 415 : 401) : 403;
          return status === expected ? [] : [[route.name, site, origin, status]];
        }),
      ),
    );
    expect(faults.flat()).toEqual([]);
  });

  test('a method that its path does not take, which is told', async () => {
    for (const path of new Set(BELOW_BASE.map((route) => route.path))) {
      const routes = BELOW_BASE.filter((route) => route.path === path);
      const [route] = routes as [Route];
      const allowed = ['GET', 'HEAD', 'POST', 'PUT', 'DELETE'].filter((method) =>
        routes.some(
          (one) => one.method === method || (method === 'HEAD' && one.method === 'GET' && !isOfBot(one)),
        ),
      );
      const others = ['GET', 'HEAD', 'POST', 'PUT', 'DELETE', 'PATCH', 'OPTIONS', 'TRACE', 'PROPFIND'].filter(
        (method) => !allowed.includes(method),
      );
      for (const method of others) {
        const answer = await answerTo(pair.relay.port, bytesOf(route, pair.cookie, { method }));
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
    const message = BELOW_BASE.find(({ operation }) => operation?.carriedBy === 'message') as Route;
    const answer = await answerTo(pair.relay.port, bytesOf(message, pair.cookie));
    expect(answer.headers.ratelimit).toMatch(/^"endpoint";r=49;/);
  });

  test('and without a fault, each is served', async () => {
    for (const route of BELOW_BASE) {
      const answer = await answerTo(pair.relay.port, bytesOf(route, await pair.relay.signIn()));
      // No run was begun that this one could ask for.
      const expected = route.operation?.carriedBy === 'run' ? /^410$/ : /^20[04]$/;
      expect([route.name, String(answer.status)]).toEqual([route.name, expect.stringMatching(expected)]);
    }
  });
});

describe.each<[string, Record<string, string>, (relay: TestRelay) => unknown, Omit<Refusal, 'change'>]>([
  [
    'while the relay drains',
    {},
    (relay) => relay.lifecycle.enter('draining'),
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
    relay = await startRelay(pair.upstream.url, {
      ALLOWED_ORIGINS: ALLOWED_ORIGIN,
      BASE_PATH,
      ...environment,
    });
    cookie = await relay.signIn();
    begin(relay);
  });
  afterAll(() => relay.close());

  test('is refused, but for probes, which use no session', async () => {
    const uses = (['get', 'set', 'extend', 'remove', 'state'] as const).map((name) =>
      jest.spyOn(relay.sessions, name),
    );
    const change = {};
    const at = ({ kind }: Route) => kind !== 'probe';
    await expectRefused(BELOW_BASE, { ...refusal, change, at }, { port: relay.port, cookie });
    for (const route of BELOW_BASE.filter(({ kind }) => kind === 'probe')) {
      const answer = await answerTo(relay.port, bytesOf(route, cookie));
      expect(answer.headers).not.toHaveProperty('set-cookie');
      const isReady = refusal.code !== 'draining' || route.path.endsWith('healthz');
      expect(answer.status).toBe(isReady ? 200 : 503);
    }
    // The session is asked for together with the limit.
    if (refusal.code === 'draining') for (const use of uses) expect(use).not.toHaveBeenCalled();
  });

  test('tells a page of an allowed origin when to come again', async () => {
    const [message] = BELOW_BASE.filter(({ operation }) => operation?.carriedBy === 'message') as [Route];
    const Origin = ALLOWED_ORIGIN;
    const refused = await answerTo(relay.port, bytesOf(message, cookie, { headers: { Origin } }));
    expect(refused.headers).toMatchObject({
      'retry-after': expect.stringMatching(/^([1-9]|[1-5]\d|60)$/),
      'access-control-allow-origin': ALLOWED_ORIGIN,
      'access-control-allow-credentials': 'true',
      'access-control-expose-headers': expect.stringContaining('Retry-After'),
    });
    const preflight = { method: 'OPTIONS', headers: { Origin, 'Access-Control-Request-Method': 'POST' } };
    expect((await answerTo(relay.port, bytesOf(message, cookie, preflight))).status).toBe(204);
  });
});
