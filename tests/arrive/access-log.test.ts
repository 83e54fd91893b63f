import type { Socket } from 'node:net';
import { afterEach, describe, expect, jest, test } from '@jest/globals';
import { requestIdFrom } from '../../src/arrive/request-head.ts';
import { PROBLEMS, Problem } from '../../src/errors.ts';
import { type Call, call, expectProblem } from '../harness/clients/call.ts';
import { until } from '../harness/clock/until.ts';
import { type Sample, samplesOf } from '../harness/relay/metric-samples.ts';
import { BOT_PATH, CANARY, MESSAGE, startRelay, type TestRelay } from '../harness/relay/relay.ts';
import { type RelayAndUpstream, startRelayAndUpstream } from '../harness/relay/relay-and-upstream.ts';
import { idOf } from '../harness/relay/sessions.ts';
import {
  chunk,
  plainAnswer,
  type RawRequest,
  STREAM_HEAD,
  wholeStream,
} from '../harness/service/raw-upstream.ts';

const PINO = ['level', 'time', 'msg'];
const ALWAYS = ['requestId', 'method', 'route', 'status', 'outcome', 'durationMs', 'bytes', 'clientAddress'];
const UUID = /^[0-9a-f]{8}-[0-9a-f]{4}-4[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}$/;
const DONE = wholeStream('data: 1\n\n');

let pair: RelayAndUpstream;
const others: TestRelay[] = [];
afterEach(async () => {
  jest.restoreAllMocks();
  for (const relay of others.splice(0)) await relay.close();
  await pair.close();
});

type OnRequest = (socket: Socket, request: RawRequest) => void;
const answers =
  (bytes: string | Buffer): OnRequest =>
  (socket) =>
    void socket.write(bytes);
async function start(environment: Record<string, string> = {}, onRequest: OnRequest = answers(DONE)) {
  pair = await startRelayAndUpstream(onRequest, { TRUST_PROXY: '1', ...environment });
}

let requests = 0;
const newId = () => `logged-${++requests}`;
const lineOfId = (id: string, { logLine }: TestRelay = pair.relay) =>
  logLine(({ requestId, msg }) => requestId === id && msg === 'request');
/** Makes a request; returns its line of the log. */
async function lineOf(path: string, { headers = {}, ...init }: Call = {}, relay = pair.relay) {
  const id = newId();
  await call(relay.port, path, { ...init, headers: { 'X-Request-Id': id, ...headers } });
  return lineOfId(id, relay);
}
/** The line of a message. */
async function lineOfMessage(headers: Record<string, string> = {}, path = BOT_PATH) {
  const id = newId();
  const answer = await pair.relay.send(pair.cookie, { path, headers: { 'X-Request-Id': id, ...headers } });
  await answer.text().catch(() => '');
  return lineOfId(id);
}
const sorted = (...names: string[][]) => names.flat().sort();
const from = (address: string) => ({ headers: { 'X-Forwarded-For': address } });

describe('the log line', () => {
  test('of a stream is the only one, with exactly the documented fields and no data of the request', async () => {
    await start();
    const secrets = { 'X-Api-Key': 'shown-header', Referer: 'http://shown-referer/' };
    const line = await lineOfMessage(secrets, `${BOT_PATH}?token=shown-query`);
    const own = ['slotWaitMs', 'upstreamStatus', 'firstByteMs', 'userId', 'bot'];
    expect(Object.keys(line).sort()).toEqual(sorted(PINO, ALWAYS, own));
    expect(line).toMatchObject({
      ...{ level: 'info', method: 'POST', status: 200, outcome: 'ok', upstreamStatus: 200 },
      route: '/generic/ns/:namespace/bot-provider/:botProviderName/message/sse',
      ...{ bytes: Buffer.byteLength('data: 1\n\n'), userId: 'ada', bot: 'acme/helper' },
    });
    const printed = JSON.stringify(pair.relay.logs);
    for (const shown of ['shown-', 'token', idOf(pair.cookie), MESSAGE]) expect(printed).not.toContain(shown);
    expect(pair.relay.logs.filter(({ requestId }) => requestId === line.requestId)).toHaveLength(1);
    const login = await pair.relay.logLine(({ route }) => route === '/auth/login');
    expect(login).toMatchObject({ status: 200, userId: 'ada' });
  });

  test('has times in order, in milliseconds with at most one decimal', async () => {
    await start({}, answers(STREAM_HEAD));
    // Of the clock that the log reads, each step is 100 ms.
    const id = newId();
    const client = pair.ask({ headers: [`X-Request-Id: ${id}`] });
    await client.waitFor('\r\n\r\n');
    const now = performance.now.bind(performance);
    for (const [n, part] of ['data: 1\n\n', 'data: 2\n\n'].entries()) {
      jest.spyOn(performance, 'now').mockImplementation(() => now() + 100_000 * (n + 1));
      pair.upstream.sockets[0]?.write(chunk(part));
      await client.waitFor(part);
    }
    pair.upstream.sockets[0]?.write('0\r\n\r\n');
    const { durationMs, firstByteMs, slotWaitMs } = (await lineOfId(id)) as Record<string, number>;
    for (const ms of [durationMs, firstByteMs, slotWaitMs]) expect(String(ms)).toMatch(/^\d+(\.\d)?$/);
    expect([slotWaitMs, firstByteMs, durationMs].map((ms) => Math.floor((ms as number) / 100_000))).toEqual([
      0, 1, 2,
    ]);
  });

  test('of a request that matches no route does not show its path', async () => {
    await start();
    const line = await lineOf('/shown-path/x?shown=1');
    expect(Object.keys(line).sort()).toEqual(sorted(PINO, ALWAYS));
    expect(line).toMatchObject({ route: 'none', status: 404, outcome: 'not_found' });
    expect(JSON.stringify(pair.relay.logs)).not.toContain('shown');
  });

  test('of a client that leaves before its answer is client_closed at level info, with its address', async () => {
    await start({ TRUST_PROXY: '' }, () => {});
    const id = newId();
    const client = pair.ask({ headers: [`X-Request-Id: ${id}`] });
    await pair.upstream.nextRequest();
    client.socket.destroy();
    expect(await lineOfId(id)).toMatchObject({
      ...{ level: 'info', status: 499, outcome: 'client_closed', clientAddress: '127.0.0.1' },
    });
  });

  test('of a successful probe is at level debug, and counts the bytes of its answer', async () => {
    await start();
    const { body } = await call(pair.relay.port, '/healthz');
    expect(await lineOf('/healthz')).toMatchObject({
      ...{ level: 'debug', status: 200, outcome: 'ok', bytes: body.length },
    });
    expect(await lineOf('/healthz', { method: 'POST' })).toMatchObject({ level: 'info', status: 405 });
    pair.relay.parts.lifecycle.enter('leaving');
    const notReady = { level: 'warn', status: 503, outcome: 'not_ready' };
    expect(await lineOf('/readyz')).toMatchObject(notReady);
  });

  const html = plainAnswer('200 OK', ['Content-Type: Text/HTML; charset=utf-8; x=shown'], '<p>');
  const gzip = plainAnswer('200 OK', ['Content-Type: text/event-stream', 'Content-Encoding: gzip'], 'x');
  const key = `K${'0123456789'.repeat(6)}`;
  const named = plainAnswer('200 OK', [`Content-Type: text/${key}`], 'x');
  const brokenOff: OnRequest = (socket) => void socket.end(`${STREAM_HEAD}${chunk('data: 1\n\n')}`);
  const reset: OnRequest = (socket) =>
    void socket.write(STREAM_HEAD, () => setImmediate(() => socket.resetAndDestroy()));
  test.each<[string, OnRequest, Record<string, unknown>]>([
    [
      'closed the connection',
      (socket) => socket.destroy(),
      { outcome: 'upstream_unreachable', cause: expect.stringMatching(/^[A-Z_]+$/) },
    ],
    ['broke off its stream', brokenOff, { outcome: 'upstream_stream_broken' }],
    ['reset its stream', reset, { outcome: 'upstream_stream_broken', cause: 'ECONNRESET' }],
    ['sent no stream', answers(html), { cause: 'status 200, Text/HTML', upstreamStatus: 200 }],
    ['encoded its stream', answers(gzip), { cause: 'status 200, text/event-stream, encoded' }],
    // A key is longer than a type that is shown.
    ['named a key', answers(named), { cause: 'status 200, text/[secret]' }],
  ])(
    'is a warning that names the cause, with status 200, if the service %s',
    async (_what, onRequest, line) => {
      await start({ UPSTREAM_API_KEYS: key }, onRequest);
      expect(await lineOfMessage()).toMatchObject({ level: 'warn', status: 200, ...line });
    },
  );

  test('does not show the status of an earlier key', async () => {
    await start({ UPSTREAM_API_KEYS: `${CANARY.key},${CANARY.secondKey}` }, (socket, { all }) => {
      if (all('x-api-key')[0] === CANARY.key) socket.write(plainAnswer('401 No', [], 'no'));
      else socket.destroy();
    });
    const line = await lineOfMessage();
    expect(line.outcome).toBe('upstream_unreachable');
    expect(Object.keys(line).sort()).toEqual(sorted(PINO, ALWAYS, ['cause', 'slotWaitMs', 'userId', 'bot']));
  });

  test('of a fault of the relay is an error, and of a store that fails a warning, each with its stack in another line', async () => {
    await start();
    const fault = (id: unknown) =>
      pair.relay.logLine(({ msg, requestId }) => msg === 'fault' && requestId === id);
    jest.spyOn(pair.relay.parts.open, 'add').mockImplementation(() => {
      throw new Error('a fault of ours');
    });
    const answer = await call(pair.relay.port, BOT_PATH, {
      method: 'POST',
      headers: { Cookie: pair.cookie },
    });
    const { requestId } = expectProblem(answer, 500, 'internal_error');
    expect(await lineOfId(requestId)).toMatchObject({
      level: 'error',
      status: 500,
      outcome: 'internal_error',
    });
    expect(await fault(requestId)).toMatchObject({ level: 'error', err: { message: 'a fault of ours' } });
    const cause = new Error('the store is away');
    const away = new Problem('session_store_unavailable', 'Away.', { retryAfter: 1, cause });
    jest.spyOn(pair.relay.parts.sessions, 'get').mockRejectedValue(away);
    const line = await lineOf('/auth/session', { headers: { Cookie: pair.cookie } });
    expect(line).toMatchObject({ level: 'warn', status: 503, outcome: 'session_store_unavailable' });
    expect(await fault(line.requestId)).toMatchObject({ err: { message: 'the store is away' } });
  });
});

describe('the address of a client in the log', () => {
  test('is the one that it counts by', async () => {
    await start();
    for (const [address, logged] of [
      ['::ffff:203.0.113.7', '203.0.113.7'],
      ['2001:db8:1:2ff::1', '2001:db8:1:200::/56'],
    ] as const)
      expect((await lineOf('/auth/session', from(address))).clientAddress).toBe(logged);
  });

  test('is a hash with LOG_ADDRESSES=hashed, the same wherever the secret is the same', async () => {
    const hashed = { TRUST_PROXY: '1', LOG_ADDRESSES: 'hashed' };
    await start(hashed);
    const SESSION_SECRETS = 'another-secret-of-sessions-that-is-long-enough';
    others.push(await startRelay(pair.upstream.url, hashed));
    others.push(await startRelay(pair.upstream.url, { ...hashed, SESSION_SECRETS }));
    const [same, other] = others;
    const hashOf = async (address: string, relay = pair.relay) =>
      (await lineOf('/auth/session', from(address), relay)).clientAddress;
    const hash = await hashOf('203.0.113.7');
    expect(hash).toMatch(/^[\w-]{16}$/);
    expect([await hashOf('203.0.113.7'), await hashOf('203.0.113.7', same)]).toEqual([hash, hash]);
    expect(await hashOf('203.0.113.7', other)).not.toBe(hash);
    expect(await hashOf('203.0.113.8')).not.toBe(hash);
    expect(JSON.stringify([pair.relay, ...others].flatMap(({ logs }) => logs))).not.toContain('203.0.113');
  });

  test('is left out with LOG_ADDRESSES=off', async () => {
    await start({ LOG_ADDRESSES: 'off' });
    expect(await lineOf('/auth/session', from('203.0.113.7'))).not.toHaveProperty('clientAddress');
    expect(JSON.stringify(pair.relay.logs)).not.toContain('203.0.113');
  });
});

describe('who is behind a refused request, in the log', () => {
  const login = (username: string, password = 'wrong') =>
    lineOf('/auth/login', {
      method: 'POST',
      headers: { 'Content-Type': 'application/json', 'X-Forwarded-For': '203.0.113.7' },
      body: JSON.stringify({ username, password }),
    });

  test('is the account of a sign-in that has failed, or that is locked', async () => {
    await start({ LOGIN_MAX_FAILURES: '1' });
    const by = { account: 'ada', clientAddress: '203.0.113.7' };
    expect(await login('ada')).toMatchObject({ outcome: 'invalid_credentials', ...by });
    expect(await login('ada', CANARY.password)).toMatchObject({ outcome: 'too_many_attempts', ...by });
  });

  test('is no name that nobody has, which may be a password or a forged line', async () => {
    await start();
    for (const name of [
      ...['eve', 'ada\n{"level":"info","msg":"request","userId":"bob"}', 'ada\u001b[2J', 'ada\u202e'],
      ...['ada","userId":"bob', 'ada\ud800', 'a'.repeat(65), ''],
    ])
      expect([name, await login(name)]).toMatchObject([
        name,
        { outcome: 'invalid_credentials', account: '?' },
      ]);
    expect(JSON.stringify(pair.relay.logs)).not.toMatch(/bob|"eve/);
  });

  test.each(['CLIENT_LIMIT_PER_ADDRESS', 'CLIENT_LIMIT_PER_SESSION'])(
    'is the user and the bot where %s is reached, and the bot alone where nobody has signed in',
    async (limit) => {
      await start({ [limit]: '2' });
      const headers = { 'Content-Type': 'application/json', 'X-Forwarded-For': '203.0.113.7' };
      const send = (Cookie: string) =>
        lineOf(BOT_PATH, { method: 'POST', headers: { ...headers, Cookie }, body: MESSAGE });
      for (let n = 0; n < 2; n++) expect((await send(pair.cookie)).status).toBe(200);
      expect(await send(pair.cookie)).toMatchObject({
        ...{ status: 429, outcome: 'too_many_attempts', clientAddress: '203.0.113.7' },
        ...{ userId: 'ada', bot: 'acme/helper' },
      });
      const line = await send('');
      expect(line.bot).toBe('acme/helper');
      expect(line).not.toHaveProperty('userId');
    },
  );
});

describe('a request id', () => {
  test('of the caller is kept if it is well formed, else replaced', () => {
    for (const id of ['12345678', 'a'.repeat(128), 'Abc_9.-x']) expect(requestIdFrom(id)).toBe(id);
    for (const id of [
      '1234567',
      'a'.repeat(129),
      'abcd efgh',
      'abcdefgh\n',
      'abcdefgh"',
      'abcdefgé',
      undefined,
    ])
      expect(requestIdFrom(id)).toMatch(UUID);
  });

  test('is on the answer, in the problem and in the log; one that is sent twice is replaced', async () => {
    await start();
    const ask = (id: string | string[]) =>
      call(pair.relay.port, '/nowhere', { headers: { 'X-Request-Id': id } });
    expect(expectProblem(await ask('caller-id-0001'), 404, 'not_found').requestId).toBe('caller-id-0001');
    expect(await lineOfId('caller-id-0001')).toMatchObject({ status: 404 });
    const [one, two] = [await ask(['first-id-01', 'second-id-02']), await ask('short')];
    for (const { headers } of [one, two]) expect(headers['x-request-id']).toMatch(UUID);
    expect(one.headers['x-request-id']).not.toBe(two.headers['x-request-id']);
  });
});

describe('the labels of the metrics', () => {
  const samples = async (): Promise<Sample[]> =>
    // The series of the runtime change with its own objects.
    samplesOf(await pair.relay.metricsText()).filter(({ name }) => name.startsWith('bot_relay_'));

  const requests = (all: readonly Sample[]) =>
    all.filter(({ name }) => name === 'bot_relay_requests_total').reduce((sum, { value }) => sum + value, 0);

  /** How many requests of a round are counted. */
  const PER_ROUND = 12;

  /** Sends requests in which everything that a caller can choose is new in each round. */
  async function hostileRound(round: string): Promise<void> {
    const { port } = pair.relay;
    const json = { 'Content-Type': 'application/json', 'X-Request-Id': `id-${round}-0123456` };
    const message = { method: 'POST', headers: { ...json, Cookie: pair.cookie }, body: MESSAGE };
    await call(port, `/${round}`);
    await call(port, `/%00${round}?key=${CANARY.key}`);
    await call(port, `/auth/${round}"}\\n`);
    await call(port, `/x`, {
      headers: { 'User-Agent': round, 'X-API-KEY': CANARY.key, Origin: `http://${round}` },
    });
    for (const method of ['PROPFIND', 'M-SEARCH', 'PURGE', 'TRACE'])
      await call(port, '/auth/login', { method });
    await call(port, BOT_PATH.replace('helper', `bot-${round}`), message);
    await call(port, BOT_PATH.replace('acme', `ns-${round}`), message);
    await call(port, BOT_PATH, {
      ...message,
      headers: { ...json, Cookie: `bot_relay_session=${round}.x` },
    });
    await call(port, '/auth/login', {
      method: 'POST',
      headers: json,
      body: JSON.stringify({ username: `user-${round}`, password: CANARY.password }),
    });
  }

  /** The samples once there are `count` requests more than the sign-in. */
  async function samplesAfter(count: number): Promise<Sample[]> {
    await until(async () => requests(await samples()) === 1 + count, 20);
    return samples();
  }

  test('do not grow with made-up paths, methods, bots and users, and show no secret, session, user or bot', async () => {
    await start({ BOTS: '*/*' });
    await hostileRound('first');
    const before = await samplesAfter(PER_ROUND);
    for (let round = 0; round < 5; round++) await hostileRound(`made-up-${round}`);
    const after = await samplesAfter(6 * PER_ROUND);
    const series = (all: Sample[]) => all.map(({ name, labels }) => name + JSON.stringify(labels)).sort();
    expect(series(after)).toEqual(series(before));
    const known: Record<string, (value: string) => boolean> = {
      route: (value) => value === 'none' || /^\/(auth\/[a-z]+|generic\/[a-zA-Z:/-]+)$/.test(value),
      method: (value) => /^(GET|HEAD|POST|PUT|PATCH|DELETE|OPTIONS|other)$/.test(value),
      status: (value) => /^[2-5]\d\d$/.test(value),
      code: (value) => value in PROBLEMS || /^(ok|client_closed|client_stalled)$/.test(value),
      key: (value) => /^[0-9a-f]{8}$/.test(value),
      outcome: (value) => /^(\dxx|[a-z_]+)$/.test(value),
      direction: (value) => /^(up|down)$/.test(value),
      reason: (value) => /^(too_large|no_room|held|no_end_event|address|instance)$/.test(value),
      check: (value) => value === 'accepting',
      version: (value) => /^\d+\.\d+\.\d+$/.test(value),
      revision: (value) => /^([0-9a-f]{12}|unknown)$/.test(value),
      operation: (value) => /^(get|set|touch|destroy)$/.test(value),
      le: (value) => value === '+Inf' || Number(value) > 0,
    };
    for (const { labels } of after) {
      for (const [label, value] of Object.entries(labels)) {
        expect([label, value, known[label]?.(value)]).toEqual([label, value, true]);
      }
    }
    expect(after.filter(({ labels }) => labels.method === 'other')).not.toEqual([]);
    const text = await pair.relay.metricsText();
    const cookie = decodeURIComponent(pair.cookie.split('=')[1] ?? '');
    const id = cookie.slice(2).split('.')[0] ?? '';
    expect(id.length).toBeGreaterThan(20);
    for (const shown of [...Object.values(CANARY), id, 'ada', 'acme', 'helper', 'first', 'made-up']) {
      expect([shown, new RegExp(`"[^"\n]*${shown}`).test(text)]).toEqual([shown, false]);
      if (shown.length > 10) expect(text).not.toContain(shown);
    }
  });
});
