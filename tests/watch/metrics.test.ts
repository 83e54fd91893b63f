import type { Socket } from 'node:net';
import { afterAll, afterEach, beforeAll, describe, expect, jest, test } from '@jest/globals';
import type { Reservation } from '../../src/pace/budgets.ts';
import type { ResumptionOutcome } from '../../src/relay/upstream/relay-observer.ts';
import { secret } from '../../src/secret.ts';
import { addProcessMetrics, createMetrics } from '../../src/watch/metrics.ts';
import { type MetricsServer, startMetricsServer } from '../../src/watch/metrics-server.ts';
import { call, expectProblem } from '../harness/clients/call.ts';
import { failureOf } from '../harness/clients/error-event.ts';
import { filePart, formOf, textPart } from '../harness/clients/forms.ts';
import { ask, operationAt, operationRequest } from '../harness/clients/operation-requests.ts';
import { dechunk, rawClient } from '../harness/clients/raw-client.ts';
import { jsonAnswer } from '../harness/clients/suspend.ts';
import { advanceClocks } from '../harness/clock/advance-clocks.ts';
import { until } from '../harness/clock/until.ts';
import { faultProxy } from '../harness/faults/fault-proxy.ts';
import { describeWithRedis, startRedis, stopRedis } from '../harness/redis/redis.ts';
import { samplesOf, total } from '../harness/relay/metric-samples.ts';
import { CANARY } from '../harness/relay/relay.ts';
import { type RelayAndUpstream, startRelayAndUpstream } from '../harness/relay/relay-and-upstream.ts';
import {
  chunk,
  LAST_CHUNK,
  plainAnswer,
  type RawRequest,
  STREAM_HEAD,
  wholeStream,
} from '../harness/service/raw-upstream.ts';

const MESSAGE_ROUTE = '/generic/ns/:namespace/bot-provider/:botProviderName/message/sse';
const FIRST_KEY = secret(CANARY.key).fingerprint;
const SECOND_KEY = secret(CANARY.secondKey).fingerprint;

let pair: RelayAndUpstream;
afterEach(async () => {
  jest.restoreAllMocks();
  await pair?.close();
});

async function start(onRequest: (socket: Socket, request: RawRequest) => void, environment = {}) {
  pair = await startRelayAndUpstream(onRequest, environment);
}

/** The sum of a metric's samples in a scrape now. */
async function now(name: string, labels: Record<string, string> = {}): Promise<number> {
  return total(await pair.relay.metricsText(), `bot_relay_${name}`, labels);
}

/** Resolves when `count` requests are over and counted. */
async function counted(count: number): Promise<void> {
  await until(async () => (await now('requests_total')) >= count);
}

/** Sends a message with this text. */
const send = (text: string) => pair.relay.send(pair.cookie, { body: JSON.stringify({ text }) });

const ok = (socket: Socket) => socket.write(wholeStream('data: 1\n\n'));

describe('the requests', () => {
  test('are counted by route pattern, method, status and code when they are over', async () => {
    await start(ok);
    await (await pair.relay.send(pair.cookie)).text();
    await (await pair.relay.send('')).text();
    await call(pair.relay.port, '/auth/session');
    await call(pair.relay.port, '/nothing-here');
    await counted(5);
    const requests = (labels: Record<string, string>) => now('requests_total', labels);
    const message = { route: MESSAGE_ROUTE, method: 'POST' };
    expect(await requests({ ...message, status: '200', code: 'ok' })).toBe(1);
    expect(await requests({ ...message, status: '401', code: 'unauthenticated' })).toBe(1);
    expect(await requests({ route: '/auth/login', method: 'POST', status: '200', code: 'ok' })).toBe(1);
    expect(await requests({ route: '/auth/session', method: 'GET', code: 'ok' })).toBe(1);
    expect(await requests({ route: 'none', status: '404', code: 'not_found' })).toBe(1);
    expect(await requests({})).toBe(5);
  });

  test('of probes are not counted', async () => {
    await start(ok);
    await call(pair.relay.port, '/healthz');
    await call(pair.relay.port, '/readyz');
    pair.relay.parts.lifecycle.enter('leaving');
    expect(await call(pair.relay.port, '/readyz')).toMatchObject({ status: 503 });
    await call(pair.relay.port, '/nothing-here');
    await counted(2);
    expect(await now('requests_total')).toBe(2);
    expect(await now('ready')).toBe(0);
  });

  test('with a broken stream are counted with the code of the stream', async () => {
    await start((socket) => socket.end(Buffer.concat([Buffer.from(STREAM_HEAD), chunk('data: 1\n\n')])));
    await (await pair.relay.send(pair.cookie)).text();
    await counted(2);
    expect(await now('requests_total', { status: '200', code: 'upstream_stream_broken' })).toBe(1);
  });

  test('whose client left are counted as client_closed', async () => {
    await start(() => {}, { JOIN_GRACE_MS: '0' });
    const client = pair.ask();
    await until(() => pair.upstream.requests.length === 1);
    expect(await now('open_messages')).toBe(1);
    client.socket.destroy();
    await counted(2);
    expect(await now('requests_total', { status: '499', code: 'client_closed' })).toBe(1);
    expect(await now('upstream_responses_total', { key: FIRST_KEY, outcome: 'given_up' })).toBe(1);
    expect(await now('open_messages')).toBe(0);
  });
});

describe('a stream', () => {
  test('is counted as open until it ends, and its duration is recorded then', async () => {
    const sockets: Socket[] = [];
    await start((socket) => {
      sockets.push(socket);
      socket.write(STREAM_HEAD);
    });
    const clients = ['one', 'two'].map((text) => pair.ask({ body: JSON.stringify({ text }) }));
    await Promise.all(clients.map((client) => client.waitFor('200 OK')));
    expect(await now('open_streams')).toBe(2);
    expect(await now('time_to_first_byte_seconds_count')).toBe(0);
    advanceClocks({ monotonic: 30_000 });
    for (const socket of sockets)
      socket.write(Buffer.concat([chunk('data: 1\n\n'), Buffer.from(LAST_CHUNK)]));
    await counted(3);
    expect(await now('open_streams')).toBe(0);
    for (const name of ['time_to_first_byte_seconds', 'stream_duration_seconds']) {
      expect(await now(`${name}_count`)).toBe(2);
      expect(await now(`${name}_sum`)).toBeGreaterThan(2 * 30);
      expect(await now(`${name}_sum`)).toBeLessThan(2 * 300);
      expect(await now(`${name}_bucket`, { le: '0.1' })).toBe(0);
      expect(await now(`${name}_bucket`, { le: '+Inf' })).toBe(2);
    }
  });

  test('counts its heartbeats', async () => {
    await start((socket) => socket.write(STREAM_HEAD), { HEARTBEAT_MS: '100' });
    const client = pair.ask({ headers: ['Connection: close'] });
    await client.waitFor('2\r\n:\n\r\n2\r\n:\n\r\n');
    pair.upstream.sockets[0]?.write(Buffer.concat([chunk('data: 1\n\n'), Buffer.from(LAST_CHUNK)]));
    await client.closed;
    const heartbeats = dechunk(client.text()).body.split(':\n').length - 1;
    expect(await now('heartbeats_total')).toBe(heartbeats);
  });

  test('has a duration also if it was cut', async () => {
    await start((socket) =>
      socket.write(Buffer.concat([Buffer.from(STREAM_HEAD), chunk(`data: ${'x'.repeat(70_000)}`)])),
    );
    const client = pair.ask();
    await client.waitFor('data: x');
    pair.upstream.sockets[0]?.resetAndDestroy();
    await client.closed;
    await counted(2);
    expect(await now('stream_duration_seconds_count')).toBe(1);
    expect(await now('open_streams')).toBe(0);
  });
});

/** Every outcome, so that a new one is a type error here. */
const OUTCOMES: Record<ResumptionOutcome, true> = {
  ...{ resumed: true, unreachable: true, timeout: true, unavailable: true, rate_limited: true },
  ...{ key_rejected: true, over: true, new_run: true, ended_early: true, given_up: true },
};

describe('a broken stream', () => {
  const RUN = 'data: {"eventType":"asgard.run.init","requestId":"r1"}\n\n';
  const DONE = 'data: {"eventType":"asgard.run.done","requestId":"r1"}\n\n';
  const part = (text: string) => Buffer.concat([Buffer.from(STREAM_HEAD), chunk(text)]);

  test('has a series at 0 for every outcome of a resumption from the start', async () => {
    await start(ok);
    const text = await pair.relay.metricsText();
    const lines = text.split('\n').filter((line) => line.startsWith('bot_relay_resumptions_total'));
    const series = Object.keys(OUTCOMES).map((one) => `bot_relay_resumptions_total{outcome="${one}"} 0`);
    expect(lines.sort()).toEqual(series.sort());
  });

  test('counts each attempt to resume it, and its log line says how many there were', async () => {
    let asked = 0;
    await start((socket) => {
      asked++;
      if (asked === 1) socket.end(part(`${RUN}retry: 1\nid: 1\ndata: 1\n\n`));
      else if (asked < 4) socket.write(plainAnswer('503 Later', []));
      else socket.write(wholeStream(DONE));
    });
    expect(await (await pair.relay.send(pair.cookie)).text()).toContain('asgard.run.done');
    await counted(2);
    expect(await now('resumptions_total', { outcome: 'unavailable' })).toBe(2);
    expect(await now('resumptions_total', { outcome: 'resumed' })).toBe(1);
    expect(await now('resumptions_total')).toBe(3);
    const line = await pair.relay.logLine(({ msg, bot }) => msg === 'request' && bot !== undefined);
    expect(line).toMatchObject({ status: 200, outcome: 'ok', resumptions: 3 });
    const attempts = pair.relay.logs.filter(({ msg }) => msg === 'stream resumption');
    expect(attempts.map(({ attempt, outcome }) => [attempt, outcome])).toEqual([
      [1, 'unavailable'],
      [2, 'unavailable'],
      [3, 'resumed'],
    ]);
  });

  test('that is one error event counts with its code, as in the log', async () => {
    await start((socket) => socket.write(plainAnswer('503 No', [])));
    const answer = await pair.relay.send(pair.cookie);
    expect([answer.status, await answer.text()]).toEqual([200, expect.stringContaining('event: error')]);
    await counted(2);
    expect(await now('requests_total', { status: '200', code: 'upstream_bad_response' })).toBe(1);
    const line = await pair.relay.logLine(({ msg, bot }) => msg === 'request' && bot !== undefined);
    expect(line).toMatchObject({ level: 'warn', status: 200, outcome: 'upstream_bad_response' });
  });

  test('without an end event counts as incomplete with END_EVENTS=off', async () => {
    await start((socket) => socket.write(wholeStream(RUN)), { END_EVENTS: 'off' });
    expect(await (await pair.relay.send(pair.cookie)).text()).toBe(RUN);
    expect(await now('incomplete_ends_total', { reason: 'no_end_event' })).toBe(1);
    expect(await now('incomplete_ends_total')).toBe(1);
  });

  test('that ends inside an event of no run counts as incomplete', async () => {
    await start((socket) => socket.write(wholeStream('data: 1\n\ndata: half')));
    expect(await (await pair.relay.send(pair.cookie)).text()).toBe('data: 1\n\ndata: half');
    expect(await now('incomplete_ends_total', { reason: 'held' })).toBe(1);
    expect(await now('incomplete_ends_total')).toBe(1);
  });
});

test('an event that is too large to hold is counted once', async () => {
  await start((socket) => socket.write(wholeStream(`data: ${'x'.repeat(70_000)}`, '\n\ndata: 2\n\n')));
  await (await pair.relay.send(pair.cookie)).text();
  expect(await now('unheld_events_total', { reason: 'too_large' })).toBe(1);
  expect(await now('unheld_events_total')).toBe(1);
  const text = await pair.relay.metricsText();
  expect(text).toContain('bot_relay_unheld_events_total{reason="no_room"} 0');
});

describe('the wait for a slot', () => {
  test('has the outcome refused if a message gets no second slot for its next key', async () => {
    const sockets: Socket[] = [];
    await start((socket) => void sockets.push(socket), {
      UPSTREAM_API_KEYS: `${CANARY.key},${CANARY.secondKey}`,
      RATE_MAX_WAIT_MS: '0',
    });
    const answers = ['one', 'two'].map(send);
    await until(() => sockets.length === 2);
    // From now on, nothing is sent to the bot for a minute.
    sockets[0]?.write(plainAnswer('429 Busy', ['Retry-After: 60']));
    await until(() => pair.relay.logs.some(({ outcome }) => outcome === 'upstream_rate_limited'));
    sockets[1]?.write(plainAnswer('401 No', []));
    const failures = await Promise.all(answers.map(async (answer) => failureOf(await answer)));
    expect(failures.map(({ status, code }) => `${status} ${code}`).sort()).toEqual([
      '429 rate_limited',
      '429 upstream_rate_limited',
    ]);
    // The sign-in is the third request.
    await counted(3);
    expect(await now('requests_total', { code: 'rate_limited' })).toBe(1);
    expect(await now('slot_wait_seconds_count', { outcome: 'refused' })).toBe(1);
  });

  test('has the outcome granted if a message gets a slot', async () => {
    await start(ok, { RATE_LIMIT: '1', RATE_WINDOW_MS: '500', RATE_MAX_WAIT_MS: '60000' });
    const answers = await Promise.all(['one', 'two'].map(send));
    await Promise.all(answers.map((answer) => answer.text()));
    await counted(3);
    expect(await now('slot_wait_seconds_count', { outcome: 'granted' })).toBe(2);
    expect(await now('slot_wait_seconds_count')).toBe(2);
  });

  test('has the outcome refused if a message gets no slot in time', async () => {
    await start(ok, { RATE_LIMIT: '1', RATE_WINDOW_MS: '60000', RATE_MAX_WAIT_MS: '0' });
    await (await pair.relay.send(pair.cookie)).text();
    expect((await pair.relay.send(pair.cookie)).status).toBe(429);
    await counted(3);
    expect(await now('slot_wait_seconds_count', { outcome: 'granted' })).toBe(1);
    expect(await now('slot_wait_seconds_count', { outcome: 'refused' })).toBe(1);
    expect(await now('slot_wait_seconds_count')).toBe(2);
    expect(await now('requests_total', { code: 'rate_limited' })).toBe(1);
  });

  test('does not count another operation', async () => {
    await start(
      (socket) => void socket.write(plainAnswer('200 OK', ['Content-Type: application/json'], '{}')),
    );
    expect((await ask(pair, operationAt('GET channel/metadata'))).status).toBe(200);
    await counted(2);
    expect(await now('requests_total', { code: 'ok' })).toBe(2);
    expect(await now('slot_wait_seconds_count', { outcome: 'granted' })).toBe(0);
  });

  test('has the outcome given_up if the client leaves, and its length is in seconds', async () => {
    await start(ok, { RATE_LIMIT: '1', RATE_WINDOW_MS: '60000', RATE_MAX_WAIT_MS: '90000' });
    await (await pair.relay.send(pair.cookie)).text();
    const reserve = jest.spyOn(pair.relay.parts.budgets, 'reserve');
    const client = pair.ask();
    await until(async () => {
      const answers = await Promise.all(
        reserve.mock.results.map(({ value }) => value as Promise<Reservation>),
      );
      return answers.some(({ state }) => state === 'granted');
    });
    advanceClocks({ monotonic: 20_000 });
    client.socket.destroy();
    await counted(3);
    expect(await now('slot_wait_seconds_count', { outcome: 'given_up' })).toBe(1);
    const seconds = await now('slot_wait_seconds_sum', { outcome: 'given_up' });
    expect(seconds).toBeGreaterThanOrEqual(20);
    expect(seconds).toBeLessThan(200);
  });
});

describe('the bot service', () => {
  const BOTH = { UPSTREAM_API_KEYS: `${CANARY.key},${CANARY.secondKey}` };
  const answered = (key: string, outcome: string) => now('upstream_responses_total', { key, outcome });

  test('has a series at 0 for every outcome of every key from the start', async () => {
    await start(ok, BOTH);
    const text = await pair.relay.metricsText();
    for (const key of [FIRST_KEY, SECOND_KEY]) {
      expect(text).toContain(`bot_relay_upstream_responses_total{key="${key}",outcome="key_rejected"} 0`);
    }
  });

  test('is counted by the key of the request', async () => {
    await start((socket, { all }) => {
      if (all('x-api-key')[0] === CANARY.key) socket.write(plainAnswer('401 No', []));
      else ok(socket);
    }, BOTH);
    await (await pair.relay.send(pair.cookie)).text();
    expect(await answered(FIRST_KEY, 'key_rejected')).toBe(1);
    expect(await answered(SECOND_KEY, '2xx')).toBe(1);
    expect(await now('upstream_responses_total')).toBe(2);
  });

  const answers = (statusLine: string) => (socket: Socket) => socket.write(plainAnswer(statusLine, []));
  test.each<[string, string, (socket: Socket) => unknown, object]>([
    ['answers 403', 'forbidden', answers('403 No'), {}],
    ['answers 422', '4xx', answers('422 No'), {}],
    ['answers 503', '5xx', answers('503 No'), {}],
    ['answers 302', '3xx', answers('302 No'), {}],
    ['answers 777', 'other', answers('777 No'), {}],
    ['closes the connection', 'unreachable', (socket) => socket.destroy(), {}],
    ['does not speak HTTP', 'not_http', (socket) => socket.write('SSH-2.0\r\n\r\n'), {}],
    ['does not answer', 'timeout', () => {}, { UPSTREAM_RESPONSE_TIMEOUT_MS: '200' }],
  ])('that %s counts as %s', async (_what, outcome, onRequest, environment) => {
    await start(onRequest, environment);
    await (await pair.relay.send(pair.cookie)).text();
    expect(await answered(FIRST_KEY, outcome)).toBe(1);
    expect(await now('upstream_responses_total')).toBe(1);
  });

  test('that answers 429 counts as rate_limited, and its refusal has a code', async () => {
    await start((socket) => socket.write(plainAnswer('429 No', ['Retry-After: 30'])));
    await (await pair.relay.send(pair.cookie)).text();
    await counted(2);
    expect(await answered(FIRST_KEY, 'rate_limited')).toBe(1);
    expect(await now('requests_total', { code: 'upstream_rate_limited' })).toBe(1);
  });
});

test('the operations of the session store are counted', async () => {
  const operations = (operation: string, outcome: string) =>
    now('session_operations_total', { operation, outcome });
  await start(ok);
  expect(await operations('set', 'ok')).toBeGreaterThanOrEqual(1);
  await (await pair.relay.send(pair.cookie)).text();
  expect([await operations('get', 'ok'), await operations('touch', 'ok')]).toEqual([1, 1]);
  await call(pair.relay.port, '/auth/logout', { method: 'POST', headers: { Cookie: pair.cookie } });
  expect(await operations('destroy', 'ok')).toBeGreaterThanOrEqual(1);
  for (const operation of ['get', 'set', 'touch', 'destroy'])
    expect(await operations(operation, 'unavailable')).toBe(0);
});

test('without METRICS_PORT there are no metrics', async () => {
  pair = await startRelayAndUpstream(ok, { METRICS_PORT: '' });
  await (await pair.relay.send(pair.cookie)).text();
  expect(await pair.relay.metricsText()).toBe('');
});

describe('the bytes of files', () => {
  const UPLOAD = operationAt('POST blob');
  const DOWNLOAD = operationAt('GET channel-home/download');

  const FILES = { OPERATIONS: 'message,files', MAX_UPLOAD_BYTES: '100000' };

  async function counts() {
    const of = (direction: string) => now('transferred_bytes_total', { direction });
    return { up: await of('up'), down: await of('down') };
  }

  /** Resolves when the counts differ from `before`. */
  async function changed(before: Awaited<ReturnType<typeof counts>>) {
    let now = before;
    await until(async () => {
      now = await counts();
      return now.up !== before.up || now.down !== before.down;
    });
    return now;
  }

  const NONE = { up: 0, down: 0 };
  const upload = (bytes: number) =>
    ask(pair, UPLOAD, { body: formOf([filePart(Buffer.alloc(bytes)), textPart('c1')]) });

  test('are counted by direction, without those around them', async () => {
    let isUpload = true;
    await start(
      (socket) =>
        socket.write(
          isUpload ? jsonAnswer('200 OK', { blobId: 'b1' }) : plainAnswer('200 OK', [], 'x'.repeat(70_000)),
        ),
      FILES,
    );
    expect(await pair.relay.metricsText()).toMatch(
      /^bot_relay_transferred_bytes_total\{direction="up"\} 0$/m,
    );
    expect((await upload(80_000)).status).toBe(200);
    expect(await changed(NONE)).toEqual({ up: 80_000, down: 0 });
    isUpload = false;
    expect((await ask(pair, DOWNLOAD)).status).toBe(200);
    expect(await changed({ up: 80_000, down: 0 })).toEqual({ up: 80_000, down: 70_000 });
  });

  test('are counted as far as they went if a transfer breaks off or is refused', async () => {
    await start((socket) => {
      socket.write(`HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\n${'x'.repeat(40)}`);
    }, FILES);
    const { path } = operationRequest(DOWNLOAD);
    const head = [`GET ${path} HTTP/1.1`, 'Host: app.example.com', `Cookie: ${pair.cookie}`];
    const client = rawClient(pair.relay.port, `${head.join('\r\n')}\r\n\r\n`);
    await client.waitFor('x'.repeat(40));
    pair.upstream.sockets[0]?.destroy();
    await client.closed;
    expect(await changed(NONE)).toEqual({ up: 0, down: 40 });
    expect((await upload(120_000)).status).toBe(413);
    const { up } = await changed({ up: 0, down: 40 });
    expect(up).toBeGreaterThan(0);
    expect(up).toBeLessThanOrEqual(100_000);
  });

  test('of streams and of JSON are not counted', async () => {
    await start((socket) => socket.write(jsonAnswer('404 No', { error: 'none' })), FILES);
    expect((await ask(pair, DOWNLOAD)).status).toBe(404);
    await (await pair.relay.send(pair.cookie)).text();
    // The sign-in is the third request.
    await counted(3);
    expect(await counts()).toEqual(NONE);
  });
});

describe('the port of the metrics', () => {
  const { registry, readAtScrape } = createMetrics(['0123abcd']);
  addProcessMetrics(registry);
  readAtScrape({
    checks: { accepting: async () => true, redis: async () => false },
    openMessages: () => 7,
    runBytes: () => 0,
  });
  let server: MetricsServer;
  beforeAll(async () => {
    server = await startMetricsServer({ host: '127.0.0.1', registry });
  });
  afterAll(() => server.close());

  test.each(['/metrics', '/metrics?module=any'])('answers GET %s in Prometheus text format', async (path) => {
    const answer = await call(server.port, path);
    expect(answer.status).toBe(200);
    expect(answer.headers['content-type']).toBe('text/plain; version=0.0.4; charset=utf-8');
    expect(answer.headers['cache-control']).toBe('no-store');
    const samples = samplesOf(answer.body);
    expect(samples).toContainEqual({ name: 'bot_relay_ready', labels: { check: 'accepting' }, value: 1 });
    expect(samples).toContainEqual({ name: 'bot_relay_ready', labels: { check: 'redis' }, value: 0 });
    expect(samples).toContainEqual({ name: 'bot_relay_open_messages', labels: {}, value: 7 });
    expect(samples.map(({ name }) => name)).toContain('process_resident_memory_bytes');
  });

  test('answers HEAD without a body', async () => {
    const { status, body, headers } = await call(server.port, '/metrics', { method: 'HEAD' });
    expect({ status, body }).toEqual({ status: 200, body: '' });
    expect(Number(headers['content-length'])).toBeGreaterThan(1000);
  });

  test.each(['POST', 'PUT', 'DELETE', 'OPTIONS'])('refuses %s with Allow', async (method) => {
    const answer = await call(server.port, '/metrics', { method });
    expectProblem(answer, 405, 'method_not_allowed');
    expect(answer.headers.allow).toBe('GET, HEAD');
  });

  test.each(['/', '/metrics/', '/Metrics', '/metrics/x', '/healthz', '//metrics', '*'])(
    'has nothing at %s',
    async (path) => {
      expectProblem(await call(server.port, path), 404, 'not_found');
    },
  );

  test('does not show the error when the metrics cannot be read', async () => {
    const metrics = async () => Promise.reject(new Error('secret reason'));
    const broken = await startMetricsServer({
      host: '127.0.0.1',
      registry: Object.create(registry, { metrics: { value: metrics } }),
    });
    const answer = await call(broken.port, '/metrics');
    expectProblem(answer, 500, 'internal_error');
    expect(answer.body).not.toContain('secret reason');
    await broken.close();
  });
});

describe('the public port', () => {
  test.each(['', '/chat-api'])('has no metrics, with the base path %j', async (basePath) => {
    await start(ok, { BASE_PATH: basePath });
    for (const path of ['/metrics', `${basePath}/metrics`, '/metrics/']) {
      expectProblem(await call(pair.relay.port, path), 404, 'not_found');
    }
  });
});

describeWithRedis('Redis', () => {
  afterEach(() => stopRedis());

  test('has the duration of its runs in seconds, by whether it answered', async () => {
    const wire = await faultProxy((await startRedis()).url);
    await start(ok, { REDIS_URL: wire.url });
    const runs = (what: string, outcome: string) => now(`redis_run_duration_seconds_${what}`, { outcome });
    const failed = await runs('count', 'unavailable');
    const held = wire.hold('server', 'bot-relay:session');
    const answer = pair.relay.send(pair.cookie);
    await held.begun;
    advanceClocks({ monotonic: 30_000 });
    held.release();
    expect((await answer).status).toBe(200);
    expect(await runs('count', 'ok')).toBeGreaterThanOrEqual(1);
    expect(await runs('sum', 'ok')).toBeGreaterThanOrEqual(30);
    expect(await runs('sum', 'ok')).toBeLessThan(10_000);
    wire.close();
    expect((await pair.relay.send(pair.cookie)).status).toBe(503);
    expect(await runs('count', 'unavailable')).toBeGreaterThan(failed);
    expect(await now('session_operations_total', { operation: 'get', outcome: 'unavailable' })).toBe(1);
  });
});
