import { createServer, type Socket } from 'node:net';
import { afterAll, afterEach, describe, expect, jest, test } from '@jest/globals';
import { TOO_LONG } from '../../src/relay/message/deadlines.ts';
import { Run } from '../../src/runs/run.ts';
import { call, expectProblem, parseAnswer } from '../harness/clients/call.ts';
import { expectErrorEvent } from '../harness/clients/error-event.ts';
import { type RawClient, rawClient, rawMessage } from '../harness/clients/raw-client.ts';
import { CHANNEL, jsonAnswer, rawSuspend, SHORT_SUSPEND_PATH, suspend } from '../harness/clients/suspend.ts';
import { until } from '../harness/clock/until.ts';
import { faultProxy } from '../harness/faults/fault-proxy.ts';
import { describeWithRedis, startRedis, stopRedis } from '../harness/redis/redis.ts';
import { BOT_PATH, CANARY, OTHER_USER, startRelay, type TestRelay } from '../harness/relay/relay.ts';
import { type RelayAndUpstream, startRelayAndUpstream } from '../harness/relay/relay-and-upstream.ts';
import {
  chunk,
  plainAnswer,
  type RawRequest,
  STREAM_HEAD,
  startRawUpstream,
  wholeStream,
} from '../harness/service/raw-upstream.ts';

const CLOSE = ['Connection: close'];
const isMessage = ({ requestLine }: RawRequest) => requestLine.includes('/message/sse');
const event = (eventType: string, requestId?: string) =>
  `data: ${JSON.stringify({ eventType: `asgard.${eventType}`, ...(requestId && { requestId }), fact: {} })}\n\n`;
const begins = (...events: string[]) => Buffer.concat([Buffer.from(STREAM_HEAD), ...events.map(chunk)]);

let pair: RelayAndUpstream;
const messages = () => pair.upstream.requests.filter(isMessage);
const suspends = () => pair.upstream.requests.filter((request) => !isMessage(request));
const lineOfMessage = () => pair.relay.logLine(({ msg, bot }) => msg === 'request' && bot === 'acme/helper');

/** One message in two minutes: every other one waits. Suspends have a budget of their own. */
const ONE_AT_A_TIME = { RATE_LIMIT: '1', RATE_WINDOW_MS: '120000', RATE_MAX_WAIT_MS: '600000' };
const TWO_AT_A_TIME = { ...ONE_AT_A_TIME, RATE_LIMIT: '2' };
let texts = 0;
/** Each is a message of its own: the same bytes would join its run. */
const bodyOf = (id: string) => JSON.stringify({ customChannelId: id, text: `hi ${++texts}`, action: 'NONE' });
const NO_RUN = jsonAnswer('404 Not Found', { error: { code: 'NO_RUN' } });
/** A service that begins a stream for each message, and has nothing to stop. */
const service = (socket: Socket, request: RawRequest) =>
  void socket.write(isMessage(request) ? begins('data: 1\n\n') : NO_RUN);

/** Sends a message that waits before it is sent; resolves when all instances know that it waits. */
async function waiting<T>({ relay }: Pick<RelayAndUpstream, 'relay'>, ask: () => T): Promise<T> {
  const claiming = jest.spyOn(relay.parts.runStore, 'claim');
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

const another = () => pair.ask({ headers: CLOSE, body: bodyOf('c1') });

describe('a suspend', () => {
  afterEach(() => pair.close());

  /** Sends a message to a service, which takes the only slot; other requests go to `answer`, too. */
  async function start(environment: Record<string, string> = ONE_AT_A_TIME, answer = service) {
    const isFirst = () => messages().length === 1;
    pair = await startRelayAndUpstream(
      (socket, request) => (isMessage(request) && isFirst() ? service : answer)(socket, request),
      environment,
    );
    const first = pair.ask({ body: bodyOf('c1') });
    await first.waitFor('data: 1\n\n');
    return first;
  }
  const lineOfSuspend = () => pair.relay.logLine(({ route }) => String(route).endsWith('/suspend'));

  test('drops the message that waits for its slot, and is 200 where the service has nothing to stop', async () => {
    await start();
    const client = await waiting(pair, another);
    const { status, headers, body } = await suspend(pair);
    expect([status, headers['content-type'], body]).toEqual([200, 'application/json', '{}']);
    await expectStopped(client);
    expect(messages()).toHaveLength(1);
    const dropped = await pair.relay.logLine(({ outcome }) => outcome === 'stopped');
    expect(dropped).toMatchObject({ level: 'info', status: 200, slotWaitMs: expect.any(Number) });
    expect(await lineOfSuspend()).toMatchObject({ status: 200, upstreamStatus: 404, stoppedMessages: 1 });
    expect(await pair.relay.metricsText()).toMatch(
      /bot_relay_requests_total\{.*message\/sse",.*status="200",code="stopped"\} 1/,
    );
  });

  test('drops a message that waits because the service asked to', async () => {
    await start(TWO_AT_A_TIME, (socket, request) => {
      socket.write(isMessage(request) ? plainAnswer('429 No', ['Retry-After: 60']) : NO_RUN);
    });
    const refused = jest.spyOn(Run.prototype, 'refused');
    const client = another();
    await until(() => refused.mock.calls.length > 0);
    refused.mockRestore();
    expect((await suspend(pair)).status).toBe(200);
    await expectStopped(client);
    expect(messages()).toHaveLength(2);
  });

  test('of a message at the service is 404 as there, and drops it if the service refuses it then', async () => {
    const taken = Promise.withResolvers<Socket>();
    const first = await start(TWO_AT_A_TIME, (socket, request) => {
      if (isMessage(request)) taken.resolve(socket);
      else service(socket, request);
    });
    const client = another();
    const socket = await taken.promise;
    const { status, body } = await suspend(pair);
    expect([status, body]).toEqual([404, '{"error":{"code":"NO_RUN"}}']);
    expect(await lineOfSuspend()).not.toHaveProperty('stoppedMessages');
    socket.write(plainAnswer('429 No', ['Retry-After: 1']));
    await expectStopped(client);
    expect(first.text()).not.toContain('stopped');
    expect(messages()).toHaveLength(2);
  });

  test('goes upstream as well, and its answer stays if it is not 404', async () => {
    await start(
      ONE_AT_A_TIME,
      (socket) => void socket.write(jsonAnswer('202 Accepted', { suspended: true })),
    );
    const client = await waiting(pair, another);
    const answer = await suspend(pair, { query: `${CHANNEL}&request_id=run-1`, path: SHORT_SUSPEND_PATH });
    expect([answer.status, answer.body]).toEqual([202, '{"suspended":true}']);
    await expectStopped(client);
    const { requestLine } = suspends().at(-1) as RawRequest;
    expect(requestLine).toMatch(/suspend\?custom_channel_id=\w+&request_id=run-1 /);
  });

  test('leaves other conversations alone, those of other users of the same name, and resumptions', async () => {
    await start();
    const others = [
      { body: bodyOf('c2') },
      { body: '{"text":"hi"}' },
      { body: bodyOf('c1'), cookie: await pair.relay.signIn(OTHER_USER) },
      { body: bodyOf('c1'), headers: [...CLOSE, 'Last-Event-ID: 7'] },
    ].map((message) => pair.ask({ headers: CLOSE, ...message }));
    await pair.relay.untilOpen(5);
    const own = await waiting(pair, another);
    expect((await suspend(pair)).status).toBe(200);
    await expectStopped(own);
    await pair.relay.untilOpen(5);
    expect(others.map((client) => client.text()).join('')).toBe('');
  });

  test('drops a message whose connection to the service is not open yet', async () => {
    // It never answers the TLS handshake.
    const sockets: Socket[] = [];
    const silent = createServer((socket) => void sockets.push(socket));
    await new Promise<void>((resolve) => silent.listen(0, '127.0.0.1', resolve));
    const { port } = silent.address() as { port: number };
    pair = await startRelayAndUpstream(() => {}, { UPSTREAM_BASE_URL: `https://127.0.0.1:${port}` });
    const client = another();
    await until(() => sockets.length > 0);
    const suspending = rawClient(pair.relay.port, rawSuspend(pair));
    await expectStopped(client);
    suspending.socket.destroy();
    for (const socket of sockets) socket.destroy();
    silent.close();
  });
});

describeWithRedis('with Redis, a suspend', () => {
  const open: { close(): unknown }[] = [];
  afterEach(async () => {
    for (const one of open.splice(0)) await one.close();
  });
  afterAll(stopRedis);

  /** Two instances, the first of which has sent a message, and the second is asked to suspend. */
  async function start() {
    const redis = await startRedis();
    const upstream = await startRawUpstream(service);
    const environment = { REDIS_URL: redis.url, ...ONE_AT_A_TIME };
    const relays = [
      await startRelay(upstream.url, environment),
      await startRelay(upstream.url, environment),
    ] as const;
    const cookie = await relays[0].signIn();
    const ask = ({ port }: TestRelay = relays[0]) => {
      const client = rawClient(port, rawMessage({ cookie, headers: CLOSE, body: bodyOf('c1') }));
      open.push({ close: () => client.socket.destroy() });
      return client;
    };
    open.push(...relays, upstream);
    pair = { relay: relays[1], upstream, cookie, ask: () => ask(), close: async () => {} };
    await ask().waitFor('data: 1\n\n');
    return { redis, relays, ask };
  }

  test('at one instance drops what waits at the other', async () => {
    const { relays, ask } = await start();
    const client = await waiting({ relay: relays[0] }, () => ask());
    const answer = await suspend(pair);
    expect([answer.status, answer.body]).toEqual([200, '{}']);
    await expectStopped(client);
    expect(messages()).toHaveLength(1);
    const line = await relays[1].logLine(({ route }) => String(route).endsWith('/suspend'));
    expect(line).toMatchObject({ stoppedMessages: 1 });
  });

  test('is 503, as is a message that waits, if Redis cannot be asked, and nothing is sent', async () => {
    const { redis, ask } = await start();
    // Everything but the names of runs.
    const others = ['~bot-relay:[a-z]*', '~bot-relay:{budget*'];
    await redis.command('ACL', 'SETUSER', 'default', 'resetkeys', ...others);
    const client = ask();
    await client.closed;
    expect(client.text()).toMatch(/^HTTP\/1\.1 503 [\s\S]*"code":"session_store_unavailable"/);
    expectProblem(await suspend(pair), 503, 'session_store_unavailable', { retryable: 'new message' });
    expect(pair.upstream.requests).toHaveLength(1);
  });

  test('needs that a message is confirmed: if that is slow, its budget is asked again before it is sent', async () => {
    const proxy = await faultProxy((await startRedis()).url);
    // The connection is kept for the second message: opening one would ask the budget as well.
    const ended = (socket: Socket) => void socket.write(wholeStream('data: 1\n\n'));
    const environment = { RATE_LIMIT: '1', RATE_WINDOW_MS: '2000', RATE_MAX_WAIT_MS: '20000' };
    pair = await startRelayAndUpstream(ended, { ...environment, REDIS_URL: proxy.url });
    open.push(pair, proxy);
    await another().waitFor('data: 1\n\n');
    const asked = jest.spyOn(pair.relay.parts.budgets, 'start');
    const order: string[] = [];
    const { confirm } = pair.relay.parts.runStore;
    jest.spyOn(pair.relay.parts.runStore, 'confirm').mockImplementation((run) => {
      order.push(`confirmed after ${asked.mock.calls.length}`);
      return confirm(run);
    });
    const client = await waiting(pair, another);
    proxy.delay(100);
    await client.waitFor('data: 1\n\n');
    // In a busy process the message may be late. Then both are asked once more, in the same order.
    expect(order[0]).toBe('confirmed after 1');
    expect(order).toEqual(order.map((_, n) => `confirmed after ${n + 1}`));
    expect(asked.mock.calls.length).toBeGreaterThan(order.length);
  });
});

describe('SUSPEND_ON_LEAVE', () => {
  afterEach(() => pair.close());
  const INIT = event('run.init', 'run 1/ä');
  const DELTA = event('message.delta', 'run 1/ä');
  const SUSPENDED = jsonAnswer('200 OK', { suspended: true });
  const LEFT = 'suspend of a run that its client has left';
  const SETTINGS = { SUSPEND_ON_LEAVE: 'on', RESUME_UPSTREAM: 'off', JOIN: 'off' };

  type OnSuspend = (socket: Socket, request: RawRequest) => unknown;
  interface Setup {
    /** What the service sends of each stream, which then stays open. */
    readonly events?: readonly string[];
    readonly onSuspend?: OnSuspend;
    readonly environment?: Record<string, string>;
  }
  async function start(setup: Setup = {}): Promise<void> {
    const { events = [INIT, DELTA], onSuspend = (socket) => socket.write(SUSPENDED), environment } = setup;
    pair = await startRelayAndUpstream(
      (socket, request) => {
        if (isMessage(request)) socket.write(begins(...events));
        else onSuspend(socket, request);
      },
      { ...SETTINGS, ...environment },
    );
  }
  /** Sends a message; resolves when its events have come. */
  async function stream(message: Parameters<RelayAndUpstream['ask']>[0] = {}): Promise<RawClient> {
    const client = pair.ask({ headers: CLOSE, body: bodyOf('c1'), ...message });
    await client.waitFor('\n\n');
    return client;
  }
  const leave = ({ socket }: RawClient) => void socket.destroy();
  const line = () => pair.relay.logLine(({ msg }) => msg === LEFT);
  const outcomes = () => pair.relay.logs.filter(({ msg }) => msg === LEFT).map(({ outcome }) => outcome);
  const expectCounted = async (outcome: string) =>
    expect(await pair.relay.metricsText()).toContain(
      `bot_relay_suspends_on_leave_total{outcome="${outcome}"} 1\n`,
    );

  test.each([BOT_PATH, BOT_PATH.replace('/generic', '')])(
    'suspends a run that its client leaves, at the path of its message, %s',
    async (path) => {
      await start();
      const client = await stream({ path });
      expect(suspends()).toEqual([]);
      leave(client);
      const logged = await line();
      const [message, suspended, ...more] = pair.upstream.requests as [RawRequest, RawRequest];
      expect(more).toEqual([]);
      const target = suspended.requestLine.split(' ')[1] ?? '';
      const { pathname, searchParams } = new URL(target, pair.upstream.url);
      const channel = JSON.parse(String(message.body)).customChannelId;
      expect(channel).toMatch(/^[0-9a-f]{64}$/);
      expect(suspended.requestLine).toMatch(/^POST /);
      expect(pathname).toBe(path.replace('/sse', '/suspend'));
      expect([...searchParams]).toEqual([
        ['custom_channel_id', channel],
        ['request_id', 'run 1/ä'],
      ]);
      const requestId = message.all('x-request-id');
      expect(['content-length', 'x-api-key', 'x-request-id'].map(suspended.all)).toEqual([
        ...[['0'], [CANARY.key], requestId],
      ]);
      const about = { level: 'info', outcome: 'suspended', bot: 'acme/helper', requestId: requestId[0] };
      expect(logged).toMatchObject(about);
      await expectCounted('suspended');
      expect(JSON.stringify(pair.relay.logs)).not.toContain(channel);
    },
  );

  test.each<[string, string, string, unknown]>([
    ['404', jsonAnswer('404 Not Found', {}), 'over', undefined],
    ['429', plainAnswer('429 No', ['Retry-After: 9']), 'rate_limited', undefined],
    ['500', plainAnswer('500 No', []), 'failed', 'status 500'],
    ['no HTTP', 'nonsense\r\n\r\n', 'failed', 'HTTPParserError'],
  ])('asks once where the service answers %s', async (_what, answer, outcome, cause) => {
    await start({ onSuspend: (socket) => socket.write(answer) });
    leave(await stream());
    const logged = await line();
    const level = outcome === 'over' ? 'info' : 'warn';
    expect([logged.outcome, logged.cause, logged.level]).toEqual([outcome, cause, level]);
    await expectCounted(outcome);
    expect(suspends()).toHaveLength(1);
  });

  test('asks with the next key where the service refuses one', async () => {
    const onSuspend: OnSuspend = (socket, { all }) =>
      socket.write(all('x-api-key')[0] === CANARY.key ? plainAnswer('401 No', []) : SUSPENDED);
    await start({ onSuspend, environment: { UPSTREAM_API_KEYS: `${CANARY.key},${CANARY.secondKey}` } });
    leave(await stream());
    expect((await line()).outcome).toBe('suspended');
    expect(suspends().map(({ all }) => all('x-api-key')[0])).toEqual([CANARY.key, CANARY.secondKey]);
  });

  test('does not wait for ever for a service that does not answer', async () => {
    const timeouts = jest.spyOn(AbortSignal, 'timeout');
    const late = new AbortController();
    await start({ onSuspend: () => late.abort(new DOMException('Late.', 'TimeoutError')) });
    const client = await stream();
    timeouts.mockReturnValueOnce(late.signal);
    leave(client);
    expect(await line()).toMatchObject({ outcome: 'failed', cause: 'TimeoutError' });
    timeouts.mockRestore();
    await until(() => pair.upstream.sockets.every(({ destroyed }) => destroyed));
  });

  test('shares the budget of suspends, not that of messages', async () => {
    const environment = { RATE_LIMIT: '2', RATE_WINDOW_MS: '120000', RATE_MAX_WAIT_MS: '0' };
    await start({ environment });
    const clients = [await stream(), await stream()];
    expect((await suspend(pair)).status).toBe(200);
    clients.map(leave);
    await until(() => outcomes().length === 2);
    expect(outcomes().sort()).toEqual(['rate_limited', 'suspended']);
    expect(suspends()).toHaveLength(2);
    await expectCounted('rate_limited');
  });

  interface Ending extends Setup {
    readonly body?: string;
    readonly end?: (client: RawClient) => unknown;
  }
  const logOut = () =>
    call(pair.relay.port, '/auth/logout', { method: 'POST', headers: { Cookie: pair.cookie } });
  test.each<[string, Ending]>([
    ['whose events have no requestId', { events: [event('run.init'), event('message.delta')] }],
    ['whose run is over', { events: [INIT, DELTA, event('run.done', 'run 1/ä')] }],
    ['whose requestId no client could send', { events: [event('run.init', 'run\n')] }],
    ['without a conversation', { body: '{"text":"hi"}' }],
    ['whose session ends', { end: logOut }],
    ['whose deadline is over', { end: () => pair.relay.parts.open.endAll(TOO_LONG) }],
    ['whose stream the service breaks', { end: () => pair.upstream.sockets[0]?.destroy() }],
    ['if it is not set', { environment: { SUSPEND_ON_LEAVE: '' } }],
  ])(
    'suspends nothing after a message %s',
    async (_which, { body = bodyOf('c1'), end = leave, ...setup }) => {
      await start(setup);
      const client = await stream({ body });
      // The client reads bytes as latin1.
      await client.waitFor(Buffer.from(setup.events?.at(-1) ?? DELTA).toString('latin1'));
      await end(client);
      await client.closed;
      await lineOfMessage();
      // By now, a request of the relay's own would have been sent before this one.
      const cookie = await pair.relay.signIn();
      expect((await suspend({ ...pair, cookie })).status).toBe(200);
      expect(suspends()).toHaveLength(1);
      expect(outcomes()).toEqual([]);
    },
  );
});
