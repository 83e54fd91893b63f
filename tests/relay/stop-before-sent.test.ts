import { createServer, type Socket } from 'node:net';
import { afterAll, afterEach, describe, expect, jest, test } from '@jest/globals';
import { Run } from '../../src/runs/run.ts';
import { expectProblem, parseAnswer } from '../harness/clients/call.ts';
import { expectErrorEvent } from '../harness/clients/error-event.ts';
import { fieldClient } from '../harness/clients/field-client.ts';
import { type RawClient, rawClient, rawMessage } from '../harness/clients/raw-client.ts';
import { CHANNEL, jsonAnswer, rawSuspend, SHORT_SUSPEND_PATH, suspend } from '../harness/clients/suspend.ts';
import { until } from '../harness/clock/until.ts';
import { faultProxy } from '../harness/faults/fault-proxy.ts';
import { describeWithRedis, type RedisServer, startRedis, stopRedis } from '../harness/redis/redis.ts';
import { OTHER_USER, startRelay, type TestRelay } from '../harness/relay/relay.ts';
import { type RelayAndUpstream, startRelayAndUpstream } from '../harness/relay/relay-and-upstream.ts';
import {
  chunk,
  plainAnswer,
  type RawRequest,
  STREAM_HEAD,
  startRawUpstream,
  wholeStream,
} from '../harness/service/raw-upstream.ts';

jest.setTimeout(60_000);

/** One message in two minutes: every other one waits. Suspends have a budget of their own. */
const ONE_AT_A_TIME = { RATE_LIMIT: '1', RATE_WINDOW_MS: '120000', RATE_MAX_WAIT_MS: '600000' };
const TWO_AT_A_TIME = { ...ONE_AT_A_TIME, RATE_LIMIT: '2' };
const CLOSE = ['Connection: close'];
let texts = 0;
/** Each is a message of its own: the same bytes would join its run. */
const bodyOf = (id: string) => JSON.stringify({ customChannelId: id, text: `hi ${++texts}`, action: 'NONE' });
const NO_RUN = jsonAnswer('404 Not Found', { error: { code: 'NO_RUN' } });

const isMessage = ({ requestLine }: RawRequest) => requestLine.includes('/message/sse');
/** A service that begins a stream for each message, and has nothing to stop. */
const service = (socket: Socket, request: RawRequest) =>
  void socket.write(
    isMessage(request) ? Buffer.concat([Buffer.from(STREAM_HEAD), chunk('data: 1\n\n')]) : NO_RUN,
  );

let pair: RelayAndUpstream;

/** Sends a message that waits before it is sent; resolves when all instances know that it waits. */
async function waiting<T>({ relay }: Pick<RelayAndUpstream, 'relay'>, ask: () => T): Promise<T> {
  const claiming = jest.spyOn(relay.runStore, 'claim');
  const sent = ask();
  await until(() => claiming.mock.results.length > 0);
  await Promise.all(claiming.mock.results.map(({ value }) => value));
  claiming.mockRestore();
  return sent;
}

/** Expects an answer that no client follows by a second sending. */
async function expectStopped(client: RawClient): Promise<void> {
  await client.closed;
  expectErrorEvent(parseAnswer(client.text()), 409, 'stopped', { retryable: false });
}

/** Sends a message to a service, which takes the only slot; other messages go to `answer`, too. */
async function start(environment: Record<string, string> = ONE_AT_A_TIME, answer = service) {
  pair = await startRelayAndUpstream(answer, { ...environment, METRICS_PORT: '9090' });
  const first = pair.ask({ body: bodyOf('c1') });
  await first.waitFor('data: 1\n\n');
  return first;
}

/** Sends a message that waits for its slot, and then is stopped. */
const another = () => pair.ask({ headers: CLOSE, body: bodyOf('c1') });

describe('a suspend', () => {
  afterEach(() => pair.close());

  test('drops the message that waits for its slot, and is 200 where the service has nothing to stop', async () => {
    await start();
    const client = await waiting(pair, () => another());
    const answer = await suspend(pair);
    expect([answer.status, answer.headers['content-type'], answer.body]).toEqual([
      200,
      'application/json',
      '{}',
    ]);
    await expectStopped(client);
    expect(pair.upstream.requests.filter(isMessage)).toHaveLength(1);
    const dropped = await pair.relay.logLine(({ outcome }) => outcome === 'stopped');
    expect(dropped).toMatchObject({ level: 'info', status: 200, slotWaitMs: expect.any(Number) });
    const line = await pair.relay.logLine(({ route }) => String(route).endsWith('/suspend'));
    expect(line).toMatchObject({ status: 200, upstreamStatus: 404, stoppedMessages: 1 });
    expect(await pair.relay.metricsText()).toMatch(
      /bot_relay_requests_total\{.*message\/sse",.*status="200",code="stopped"\} 1/,
    );
  });

  test('drops messages that wait because the service asked to, or for the next key', async () => {
    await start(TWO_AT_A_TIME, (socket, request) => {
      if (!isMessage(request)) return void socket.write(NO_RUN);
      const isFirst = pair.upstream.requests.filter(isMessage).length === 1;
      if (isFirst) return service(socket, request);
      socket.write(plainAnswer('429 No', ['Retry-After: 60']));
    });
    const refused = jest.spyOn(Run.prototype, 'refused');
    const client = another();
    await until(() => refused.mock.calls.length > 0);
    refused.mockRestore();
    expect((await suspend(pair)).status).toBe(200);
    await expectStopped(client);
    expect(pair.upstream.requests.filter(isMessage)).toHaveLength(2);
  });

  test('drops a message that the service refuses after the stop', async () => {
    const taken = Promise.withResolvers<Socket>();
    await start(TWO_AT_A_TIME, (socket, request) => {
      const isFirst = pair.upstream.requests.filter(isMessage).length === 1;
      if (!isMessage(request) || isFirst) service(socket, request);
      else taken.resolve(socket);
    });
    const client = another();
    const socket = await taken.promise;
    expect((await suspend(pair)).status).toBe(404);
    socket.write(plainAnswer('429 No', ['Retry-After: 1']));
    await expectStopped(client);
    expect(pair.upstream.requests.filter(isMessage)).toHaveLength(2);
  });

  test('goes upstream as well, and its answer stays if it is not 404', async () => {
    const suspended = jsonAnswer('202 Accepted', { suspended: true });
    await start(ONE_AT_A_TIME, (socket, request) =>
      isMessage(request) ? service(socket, request) : void socket.write(suspended),
    );
    const client = await waiting(pair, () => another());
    const answer = await suspend(pair, { query: `${CHANNEL}&request_id=run-1`, path: SHORT_SUSPEND_PATH });
    expect([answer.status, answer.body]).toEqual([202, '{"suspended":true}']);
    await expectStopped(client);
    expect(pair.upstream.requests.at(-1)?.requestLine).toMatch(
      /suspend\?custom_channel_id=\w+&request_id=run-1 /,
    );
  });

  test('is 404 if nothing waits, even while a message is at the service', async () => {
    const first = await start(TWO_AT_A_TIME, (socket, request) => {
      const isSecond = isMessage(request) && pair.upstream.requests.filter(isMessage).length === 2;
      if (!isSecond) service(socket, request);
    });
    const second = another();
    await until(() => pair.upstream.requests.filter(isMessage).length === 2);
    const answer = await suspend(pair);
    expect([answer.status, answer.body]).toEqual([404, '{"error":{"code":"NO_RUN"}}']);
    expect([first.text(), second.text()].join()).not.toContain('stopped');
    const line = await pair.relay.logLine(({ route }) => String(route).endsWith('/suspend'));
    expect(line).not.toHaveProperty('stoppedMessages');
  });

  test.each<[string, Parameters<RelayAndUpstream['ask']>[0], isOther: boolean]>([
    ['another conversation', { body: bodyOf('c2') }, false],
    ['no conversation', { body: '{"text":"hi"}' }, false],
    ['the conversation of the same name of another user', { body: bodyOf('c1') }, true],
    ['a resumption', { body: bodyOf('c1'), headers: [...CLOSE, 'Last-Event-ID: 7'] }, false],
  ])('leaves %s alone', async (_name, message, isOther) => {
    await start();
    const cookie = isOther ? await pair.relay.signIn(OTHER_USER) : pair.cookie;
    const other = pair.ask({ headers: CLOSE, cookie, ...message });
    await until(() => pair.relay.open.count() === 2);
    const own = await waiting(pair, () => another());
    expect((await suspend(pair)).status).toBe(200);
    await expectStopped(own);
    await until(() => pair.relay.open.count() === 2);
    expect(other.text()).toBe('');
  });

  test('does not end an old client by a second sending', async () => {
    await start();
    const { relay, cookie } = pair;
    const client = await waiting(pair, () => ({
      received: fieldClient({ url: relay.url, cookie, retries: 'always' }),
    }));
    expect((await suspend(pair, { query: '?custom_channel_id=c' })).status).toBe(200);
    const { data, error } = await client.received;
    expect([data.map(({ eventType }) => eventType), error]).toEqual([['asgard.run.error'], undefined]);
    expect(pair.relay.open.count()).toBe(1);
    expect(pair.upstream.requests.filter(isMessage)).toHaveLength(1);
  });

  test('drops a message whose connection to the service is not open yet', async () => {
    // It never answers the TLS handshake.
    const sockets: Socket[] = [];
    const silent = createServer((socket) => void sockets.push(socket));
    await new Promise<void>((resolve) => silent.listen(0, '127.0.0.1', resolve));
    const { port } = silent.address() as { port: number };
    pair = await startRelayAndUpstream(() => {}, { UPSTREAM_BASE_URL: `https://127.0.0.1:${port}` });
    const connected = new Promise<void>((resolve) => silent.once('connection', () => resolve()));
    const client = another();
    await connected;
    const suspending = rawClient(pair.relay.port, rawSuspend(pair));
    await expectStopped(client);
    suspending.socket.destroy();
    for (const socket of sockets) socket.destroy();
    silent.close();
  });
});

describeWithRedis('two instances over one Redis', () => {
  const open: { close(): unknown }[] = [];
  let redis: RedisServer;
  afterEach(async () => {
    for (const one of open.splice(0)) await one.close();
  });
  afterAll(stopRedis);

  async function start() {
    redis = await startRedis();
    const upstream = await startRawUpstream(service);
    const start = () => startRelay(upstream.url, { REDIS_URL: redis.url, ...ONE_AT_A_TIME });
    const relays = [await start(), await start()] as const;
    const cookie = await relays[0].signIn();
    const ask = ({ port }: TestRelay) => {
      const client = rawClient(port, rawMessage({ cookie, headers: CLOSE, body: bodyOf('c1') }));
      open.push({ close: () => client.socket.destroy() });
      return client;
    };
    open.push(...relays, upstream);
    const pairAt = (at: 0 | 1) => ({ relay: relays[at], upstream, cookie, ask: () => ask(relays[at]) });
    return {
      upstream,
      relays,
      cookie,
      ask,
      pairAt: (at: 0 | 1) => ({ ...pairAt(at), close: async () => {} }),
    };
  }

  test('a suspend at one drops what waits at the other', async () => {
    const { upstream, relays, ask, pairAt } = await start();
    await ask(relays[0]).waitFor('data: 1\n\n');
    const client = await waiting(pairAt(0), () => ask(relays[0]));
    const answer = await suspend(pairAt(1));
    expect([answer.status, answer.body]).toEqual([200, '{}']);
    await expectStopped(client);
    expect(upstream.requests.filter(isMessage)).toHaveLength(1);
    const line = await relays[1].logLine(({ route }) => String(route).endsWith('/suspend'));
    expect(line).toMatchObject({ stoppedMessages: 1 });
  });

  test('a message that waits and a suspend are 503 if Redis cannot be asked, and nothing is sent', async () => {
    const { upstream, relays, ask, pairAt } = await start();
    await ask(relays[0]).waitFor('data: 1\n\n');
    // Everything but the names of runs.
    const others = ['~bot-relay:[a-z]*', '~bot-relay:{budget*'];
    await redis.command('ACL', 'SETUSER', 'default', 'resetkeys', ...others);
    const client = ask(relays[0]);
    await client.closed;
    expect(client.text()).toMatch(/^HTTP\/1\.1 503 /);
    expect(client.text()).toContain('"code":"session_store_unavailable"');
    expectProblem(await suspend(pairAt(1)), 503, 'session_store_unavailable', { retryable: 'new message' });
    expect(upstream.requests).toHaveLength(1);
  });
});

describeWithRedis('a message that a slow Redis confirms late', () => {
  afterEach(() => pair.close());
  afterAll(stopRedis);

  test('asks its budget again before it is sent', async () => {
    const proxy = await faultProxy((await startRedis()).url);
    // The connection is kept for the second message: opening one would ask the budget as well.
    const ended = (socket: Socket) => void socket.write(wholeStream('data: 1\n\n'));
    pair = await startRelayAndUpstream(ended, {
      ...{ REDIS_URL: proxy.url, RATE_LIMIT: '1', RATE_WINDOW_MS: '2000', RATE_MAX_WAIT_MS: '20000' },
    });
    await pair.ask({ body: bodyOf('c1') }).waitFor('data: 1\n\n');
    const asked = jest.spyOn(pair.relay.budgets, 'start');
    const order: string[] = [];
    const { confirm } = pair.relay.runStore;
    jest.spyOn(pair.relay.runStore, 'confirm').mockImplementation((run) => {
      order.push(`confirmed after ${asked.mock.calls.length}`);
      return confirm(run);
    });
    const client = await waiting(pair, () => pair.ask({ body: bodyOf('c1') }));
    proxy.delay(100);
    await client.waitFor('data: 1\n\n');
    expect(order).toEqual(['confirmed after 1']);
    expect(asked.mock.calls.length).toBeGreaterThan(1);
    proxy.close();
  });
});
