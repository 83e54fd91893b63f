import type { Socket } from 'node:net';
import { afterEach, describe, expect, test } from '@jest/globals';
import { secret } from '../../src/secret.ts';
import { call } from '../support/call.ts';
import { type Pair, plainAnswer, startPair, until } from '../support/pair.ts';
import { chunk, LAST_CHUNK, type RawRequest, STREAM_HEAD, wholeStream } from '../support/raw-upstream.ts';
import { describeWithRedis, startRedis, stopRedis } from '../support/redis.ts';
import { CANARY } from '../support/relay.ts';
import { total } from '../support/samples.ts';

const MESSAGE_ROUTE = '/generic/ns/:namespace/bot-provider/:botProviderName/message/sse';
const FIRST_KEY = secret(CANARY.key).fingerprint;
const SECOND_KEY = secret(CANARY.secondKey).fingerprint;

let pair: Pair;
afterEach(() => pair.close());

async function start(onRequest: (socket: Socket, request: RawRequest) => void, environment = {}) {
  pair = await startPair(onRequest, { METRICS_PORT: '9090', ...environment });
}

/** The sum of one metric's samples as a scrape gives it now. */
async function now(name: string, labels: Record<string, string> = {}): Promise<number> {
  return total(await pair.relay.metricsText(), `bot_relay_${name}`, labels);
}

/** Resolves when as many requests are over and counted. */
async function counted(count: number): Promise<void> {
  while ((await now('requests_total')) < count) await new Promise((resolve) => setTimeout(resolve, 5));
}

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
    expect(await requests({ route: '/auth/session', method: 'GET', code: 'unauthenticated' })).toBe(1);
    expect(await requests({ route: 'none', status: '404', code: 'not_found' })).toBe(1);
    expect(await requests({})).toBe(5);
  });

  test('of probes are not counted, whatever they say', async () => {
    await start(ok);
    await call(pair.relay.port, '/healthz');
    await call(pair.relay.port, '/readyz');
    pair.relay.lifecycle.enter('leaving');
    expect(await call(pair.relay.port, '/readyz')).toMatchObject({ status: 503 });
    await call(pair.relay.port, '/nothing-here');
    await counted(2);
    expect(await now('requests_total')).toBe(2);
    expect(await now('ready')).toBe(0);
  });

  test('of wrong sign-ins carry the code of the answer', async () => {
    await start(ok);
    await expect(pair.relay.signIn({ name: 'ada', password: 'wrong' })).rejects.toThrow('401');
    await counted(2);
    expect(await now('requests_total', { route: '/auth/login', code: 'invalid_credentials' })).toBe(1);
  });

  test('tell of a stream that broke by its own code', async () => {
    await start((socket) => socket.end(Buffer.concat([Buffer.from(STREAM_HEAD), chunk('data: 1\n\n')])));
    await (await pair.relay.send(pair.cookie)).text();
    await counted(2);
    expect(await now('requests_total', { status: '200', code: 'upstream_stream_broken' })).toBe(1);
  });

  test('whose client left count as client_closed', async () => {
    await start(() => {});
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
  test('is open until it is over, and is timed then', async () => {
    const sockets: Socket[] = [];
    await start((socket) => {
      sockets.push(socket);
      socket.write(STREAM_HEAD);
    });
    const clients = [pair.ask(), pair.ask()];
    await Promise.all(clients.map((client) => client.waitFor('200 OK')));
    expect(await now('open_streams')).toBe(2);
    expect(await now('time_to_first_byte_seconds_count')).toBe(0);
    await new Promise((resolve) => setTimeout(resolve, 300));
    for (const socket of sockets)
      socket.write(Buffer.concat([chunk('data: 1\n\n'), Buffer.from(LAST_CHUNK)]));
    await counted(3);
    expect(await now('open_streams')).toBe(0);
    for (const name of ['time_to_first_byte_seconds', 'stream_duration_seconds']) {
      expect(await now(`${name}_count`)).toBe(2);
      expect(await now(`${name}_sum`)).toBeGreaterThan(2 * 0.25);
      expect(await now(`${name}_bucket`, { le: '0.1' })).toBe(0);
      expect(await now(`${name}_bucket`, { le: '60' })).toBe(2);
    }
  });

  test('counts its heartbeats as they are written', async () => {
    await start((socket) => socket.write(STREAM_HEAD), { HEARTBEAT_MS: '100' });
    const client = pair.ask();
    await client.waitFor('2\r\n:\n\r\n2\r\n:\n\r\n');
    const sent = await now('heartbeats_total');
    expect(sent).toBeGreaterThanOrEqual(2);
    expect(sent).toBeLessThanOrEqual(4);
  });

  test('is timed too if it was cut', async () => {
    await start((socket) => {
      socket.write(Buffer.concat([Buffer.from(STREAM_HEAD), chunk('data: half')]));
      setTimeout(() => socket.resetAndDestroy(), 50);
    });
    await pair.ask().closed;
    await counted(2);
    expect(await now('stream_duration_seconds_count')).toBe(1);
    expect(await now('open_streams')).toBe(0);
  });
});

describe('the wait for a slot', () => {
  test('a message that gets no second slot for its next key was refused one', async () => {
    const sockets: Socket[] = [];
    await start((socket) => void sockets.push(socket), {
      UPSTREAM_API_KEYS: `${CANARY.key},${CANARY.secondKey}`,
      RATE_MAX_WAIT_MS: '0',
    });
    const answers = [pair.relay.send(pair.cookie), pair.relay.send(pair.cookie)];
    await until(() => sockets.length === 2);
    // Nothing goes to the bot for a minute from here on.
    sockets[0]?.write(plainAnswer('429 Busy', ['Retry-After: 60']));
    await until(() => pair.relay.logs.some(({ outcome }) => outcome === 'upstream_rate_limited'));
    sockets[1]?.write(plainAnswer('401 No', []));
    expect((await Promise.all(answers)).map(({ status }) => status)).toEqual([429, 429]);
    // The sign-in is the third.
    await counted(3);
    expect(await now('requests_total', { code: 'rate_limited' })).toBe(1);
    expect(await now('slot_wait_seconds_count', { outcome: 'refused' })).toBe(1);
  });

  test('is kept apart by what came of it', async () => {
    await start(ok, { RATE_LIMIT: '1', RATE_WINDOW_MS: '500', RATE_MAX_WAIT_MS: '700' });
    const answers = await Promise.all([1, 2, 3].map(() => pair.relay.send(pair.cookie)));
    await Promise.all(answers.map((answer) => answer.text()));
    expect(answers.map(({ status }) => status).sort()).toEqual([200, 200, 429]);
    await counted(4);
    const waits = (outcome: string) => now('slot_wait_seconds_count', { outcome });
    expect(await waits('granted')).toBe(2);
    expect(await waits('refused')).toBe(1);
    expect(await waits('given_up')).toBe(0);
    expect(await now('slot_wait_seconds_sum', { outcome: 'granted' })).toBeGreaterThan(0.4);
    expect(await now('requests_total', { code: 'rate_limited' })).toBe(1);
  });

  test('is given up by a client that leaves', async () => {
    await start(ok, { RATE_LIMIT: '1', RATE_WINDOW_MS: '5000', RATE_MAX_WAIT_MS: '9000' });
    await (await pair.relay.send(pair.cookie)).text();
    const client = pair.ask();
    while ((await now('open_messages')) < 1) await new Promise((resolve) => setTimeout(resolve, 5));
    // Long enough for the message to stand in line.
    await new Promise((resolve) => setTimeout(resolve, 100));
    client.socket.destroy();
    await counted(3);
    expect(await now('slot_wait_seconds_count', { outcome: 'given_up' })).toBe(1);
  });
});

describe('the bot service', () => {
  const BOTH = { UPSTREAM_API_KEYS: `${CANARY.key},${CANARY.secondKey}` };
  const answered = (key: string, outcome: string) => now('upstream_responses_total', { key, outcome });

  test('has every outcome of every key from the start, so that its first one is seen', async () => {
    await start(ok, BOTH);
    const text = await pair.relay.metricsText();
    for (const key of [FIRST_KEY, SECOND_KEY]) {
      expect(text).toContain(`bot_relay_upstream_responses_total{key="${key}",outcome="key_rejected"} 0`);
    }
  });

  test('is told of by the key that a request carried', async () => {
    await start((socket, { all }) => {
      if (all('x-api-key')[0] === CANARY.key) socket.write(plainAnswer('401 No', []));
      else ok(socket);
    }, BOTH);
    await (await pair.relay.send(pair.cookie)).text();
    expect(await answered(FIRST_KEY, 'key_rejected')).toBe(1);
    expect(await answered(SECOND_KEY, '2xx')).toBe(1);
    expect(await now('upstream_responses_total')).toBe(2);
  });

  test.each([
    ['403 No', 'key_rejected'],
    ['422 No', '4xx'],
    ['503 No', '5xx'],
    ['302 No', '3xx'],
    ['777 No', 'other'],
  ])('that answers %s counts as %s', async (statusLine, outcome) => {
    await start((socket) => socket.write(plainAnswer(statusLine, [])));
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

  test.each([
    ['closes', 'unreachable', (socket: Socket) => socket.destroy()],
    ['talks something else', 'not_http', (socket: Socket) => socket.write('SSH-2.0\r\n\r\n')],
    ['says nothing', 'timeout', () => {}],
  ])('that %s counts as %s', async (_what, outcome, onRequest) => {
    await start(onRequest, { UPSTREAM_RESPONSE_TIMEOUT_MS: '200' });
    await (await pair.relay.send(pair.cookie)).text();
    expect(await answered(FIRST_KEY, outcome)).toBe(1);
    expect(await now('upstream_responses_total')).toBe(1);
  });
});

describe('the session store', () => {
  const operations = (operation: string, outcome: string) =>
    now('session_operations_total', { operation, outcome });

  test('is counted by operation', async () => {
    await start(ok);
    const before = await operations('set', 'ok');
    expect(before).toBeGreaterThanOrEqual(1);
    await (await pair.relay.send(pair.cookie)).text();
    expect(await operations('get', 'ok')).toBe(1);
    expect(await operations('touch', 'ok')).toBe(1);
    await call(pair.relay.port, '/auth/logout', { method: 'POST', headers: { Cookie: pair.cookie } });
    expect(await operations('destroy', 'ok')).toBeGreaterThanOrEqual(1);
    for (const operation of ['get', 'set', 'touch', 'destroy']) {
      expect(await operations(operation, 'unavailable')).toBe(0);
    }
  });
});

describe('without METRICS_PORT', () => {
  test('nothing is kept', async () => {
    pair = await startPair(ok);
    await (await pair.relay.send(pair.cookie)).text();
    expect(await pair.relay.metricsText()).toBe('');
  });
});

describeWithRedis('Redis', () => {
  afterEach(() => stopRedis());

  test('is timed, in seconds, and told apart by whether it answered', async () => {
    const redis = await startRedis();
    await start(ok, { REDIS_URL: redis.url });
    const runs = (outcome: string) => now('redis_run_duration_seconds_count', { outcome });
    const failedAtStart = await runs('unavailable');
    while ((await pair.relay.send(pair.cookie)).status !== 200) await new Promise((r) => setTimeout(r, 50));
    expect(await runs('ok')).toBeGreaterThanOrEqual(1);
    expect(await now('redis_run_duration_seconds_sum', { outcome: 'ok' })).toBeLessThan(2);
    redis.pause();
    expect((await pair.relay.send(pair.cookie)).status).toBe(503);
    expect(await runs('unavailable')).toBeGreaterThan(failedAtStart);
    redis.resume();
  });
});
