import { subscribe, unsubscribe } from 'node:diagnostics_channel';
import { createServer, type Server } from 'node:http';
import type { AddressInfo, Socket } from 'node:net';
import { afterEach, describe, expect, jest, test } from '@jest/globals';
import express from 'express';
import { connectionBounds } from '../../src/arrive/connection-bounds.ts';
import { serveConnections } from '../../src/arrive/serve-connections.ts';
import { createLogger } from '../../src/logger.ts';
import { createLifecycle, FINAL_EVENT_MS, startServer } from '../../src/process/server.ts';
import { openMessages } from '../../src/relay/message/open-messages.ts';
import { call, expectProblem, parseAnswer } from '../harness/clients/call.ts';
import { dechunk, type RawClient, rawClient, rawMessage } from '../harness/clients/raw-client.ts';
import { pass, stopClock } from '../harness/clock/stop-clock.ts';
import { until } from '../harness/clock/until.ts';
import { type RelayAndUpstream, startRelayAndUpstream } from '../harness/relay/relay-and-upstream.ts';
import { chunk, LAST_CHUNK, STREAM_HEAD } from '../harness/service/raw-upstream.ts';

const bounds = connectionBounds({ most: 100, mostOfAddress: 100 });
const LONG_GRACE = { SHUTDOWN_GRACE_MS: '60000' };
/** Longer than a test takes, in ms. */
const LONG_MS = 600_000;
/** How long a refused connection may stay open, in ms. */
const LINGER_MS = 1000;

const cleanUps: (() => unknown)[] = [];
afterEach(async () => {
  jest.restoreAllMocks();
  for (const cleanUp of cleanUps.splice(0).reverse()) await cleanUp();
});

async function start(environment: Record<string, string> = LONG_GRACE): Promise<RelayAndUpstream> {
  const pair = await startRelayAndUpstream((socket) => socket.write(STREAM_HEAD), environment);
  let closing: Promise<void> | undefined;
  const close = pair.relay.close;
  pair.relay.close = () => {
    closing ??= close();
    return closing;
  };
  cleanUps.push(() => pair.close());
  return pair;
}

function connection(port: number, bytes: string, options = {}): RawClient {
  const client = rawClient(port, bytes, options);
  cleanUps.push(() => client.socket.destroy());
  return client;
}

/** Opens a raw connection that stays half open when the other side ends. */
const stubborn = (port: number, bytes: string) => connection(port, bytes, { allowHalfOpen: true });

function drip({ socket }: RawClient): void {
  const dripping = setInterval(() => socket.write('x'), 200);
  cleanUps.push(() => clearInterval(dripping));
}

describe('a client that does not read', () => {
  const STALLED_MS = 100;
  const GET = 'GET / HTTP/1.1\r\nHost: a\r\n\r\n';

  /** Starts a server whose answers are larger than the buffers of a connection. */
  async function startTalker(stalledMs = STALLED_MS) {
    const sockets = new Set<Socket>();
    const app = express();
    const answer = Buffer.alloc(16 * 1024 * 1024, 'x');
    app.get('/', (req, res) => {
      sockets.add(req.socket);
      res.end(answer);
    });
    const late: express.Response[] = [];
    app.get('/late', (_req, res) => void late.push(res));
    const { port, close } = await startServer(app, {
      port: 0,
      host: '127.0.0.1',
      shutdown: { delayMs: 0, graceMs: 0 },
      lifecycle: createLifecycle(),
      open: openMessages(),
      logger: createLogger('silent'),
      bounds,
      keepAliveMs: 600_000,
      stalledMs,
    });
    cleanUps.push(close);
    return { port, sockets, late, length: answer.length };
  }

  test.each([1, 3])('its %i answers is closed, and the answers are released', async (count) => {
    const { port, sockets } = await startTalker();
    const { socket } = stubborn(port, GET.repeat(count));
    socket.pause();
    await until(() => sockets.size > 0);
    const [served] = [...sockets] as [Socket];
    await until(() => served.closed);
  });

  test('for a moment gets the whole answer', async () => {
    // Client and server share one busy event loop: a stall must be out of reach of its delays.
    const { port, sockets, length } = await startTalker(LONG_MS);
    const client = stubborn(port, GET);
    client.socket.pause();
    await until(() => sockets.size > 0);
    client.socket.resume();
    await until(() => client.reads.reduce((sum, { bytes }) => sum + bytes.length, 0) > length);
    expect(parseAnswer(client.text()).body).toHaveLength(length);
  });

  test('until later does not shorten the time of the next answer', async () => {
    const { port, sockets, late, length } = await startTalker(LONG_MS);
    const client = stubborn(port, GET + GET.replace('/', '/late'));
    client.socket.pause();
    await until(() => sockets.size > 0);
    client.socket.resume();
    await until(
      () => late.length > 0 && client.reads.reduce((sum, { bytes }) => sum + bytes.length, 0) > length,
    );
    const [served] = [...sockets] as [Socket];
    await until(() => served.timeout !== LONG_MS);
    late[0]?.end('the late answer');
    await client.waitFor('the late answer');
  });

  test('is not read from meanwhile, and its requests are served when it reads', async () => {
    const { port, sockets, length } = await startTalker(LONG_MS);
    const client = stubborn(port, GET);
    client.socket.pause();
    await until(() => sockets.size > 0);
    // The second request is parsed before the third one, whose head is long, and finds that the first one waits.
    client.socket.write(GET + GET.replace('Host', `X-Long: ${'x'.repeat(3000)}\r\nHost`));
    const [served] = [...sockets] as [Socket];
    await until(() => served.isPaused());
    client.socket.resume();
    const received = () => client.reads.reduce((sum, { bytes }) => sum + bytes.length, 0);
    await until(() => client.socket.destroyed || received() > 3 * length);
    expect(received()).toBeGreaterThan(3 * length);
  });

  test('until later leaves its connection the timeout of an idle one', async () => {
    const { port, sockets, length } = await startTalker(LONG_MS);
    const client = stubborn(port, GET);
    await until(() => client.reads.reduce((sum, { bytes }) => sum + bytes.length, 0) > length);
    const [served] = [...sockets] as [Socket];
    await until(() => served.timeout !== LONG_MS);
    expect(served.timeout).toBeGreaterThan(LONG_MS);
  });
});

const REFUSED: [name: string, bytes: string][] = [
  ['a CONNECT', 'CONNECT a:1 HTTP/1.1\r\nHost: a\r\n\r\n'],
  ['a malformed request', 'GARBAGE\r\n\r\n'],
];

describe.each(REFUSED)('a connection that keeps sending after %s', (_name, bytes) => {
  test('gets an answer and is closed within a bounded time', async () => {
    stopClock();
    const { relay } = await start();
    const client = stubborn(relay.port, bytes);
    drip(client);
    await client.waitFor('"}');
    // Long enough for a client to read the answer.
    pass(LINGER_MS - 1);
    await call(relay.port, '/healthz');
    expect(client.socket.destroyed).toBe(false);
    pass(1);
    await client.closed;
    const { requestId } = expectProblem(parseAnswer(client.text()), 400, 'bad_request');
    expect(parseAnswer(client.text()).headers).toMatchObject({
      connection: 'close',
      'x-content-type-options': 'nosniff',
    });
    expect(relay.logs.filter(({ msg }) => msg === 'not a request')).toEqual([
      {
        level: 'info',
        time: expect.any(String),
        msg: 'not a request',
        requestId,
        status: 400,
        outcome: 'bad_request',
      },
    ]);
  });

  test('is read further, so that no reset destroys the answer', async () => {
    stopClock();
    const { relay } = await start();
    const ended = Promise.withResolvers<void>();
    const client = stubborn(relay.port, bytes + 'x'.repeat(2_000_000));
    client.socket.once('end', ended.resolve);
    await client.waitFor('"}');
    // Meanwhile the relay reads the rest.
    for (let n = 0; n < 50; n += 1) await call(relay.port, '/healthz');
    pass(LINGER_MS);
    await ended.promise;
    // The relay has closed the connection; a reset would show here.
    client.socket.end('x');
    expect(await client.closed).toEqual({ error: undefined });
    expectProblem(parseAnswer(client.text()), 400, 'bad_request');
  });

  test('does not delay the shutdown', async () => {
    const { relay } = await start();
    const client = stubborn(relay.port, bytes);
    drip(client);
    await client.waitFor('"}');
    await relay.close();
  });
});

describe('a connection that has not made a request', () => {
  test.each([
    ['is silent', ''],
    ['has sent half of a head', 'GET /healthz HTTP/1.1\r\nHost:'],
  ])('and %s does not delay the shutdown', async (_name, bytes) => {
    const { relay } = await start();
    const client = stubborn(relay.port, bytes);
    client.socket.once('end', () => client.socket.destroy());
    // Connections are accepted in order: when a later one is served, this one was accepted.
    await call(relay.port, '/healthz');
    await relay.close();
    await client.closed;
    expect(client.text()).toBe('');
  });

  test('is closed by the shutdown, but a connection with an open stream is not', async () => {
    const pair = await start();
    const stream = pair.ask();
    await stream.waitFor('\r\n\r\n');
    const silent = stubborn(pair.relay.port, '');
    silent.socket.once('end', () => silent.socket.destroy());
    await call(pair.relay.port, '/healthz');
    const closing = pair.relay.close();
    await silent.closed;
    pair.upstream.sockets[0]?.write(Buffer.concat([chunk('data: 1\n\n'), Buffer.from(LAST_CHUNK)]));
    await closing;
    await stream.closed;
    expect(dechunk(stream.text())).toMatchObject({ body: 'data: 1\n\n', complete: true });
  });
});

describe('a client that resets its connection in the middle of a head', () => {
  test('gets no answer, since nobody would read it', async () => {
    const { relay } = await start();
    const client = stubborn(relay.port, 'GET /healthz HTTP/1.1\r\nHost:');
    await call(relay.port, '/healthz');
    client.socket.resetAndDestroy();
    await client.closed;
    await call(relay.port, '/healthz');
    await relay.close();
    expect(relay.logs.filter(({ msg }) => msg === 'not a request')).toEqual([]);
  });
});

test('a body that breaks off after its answer was complete gets no second answer', async () => {
  const { relay } = await start();
  const head = 'GET /healthz HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n';
  const client = stubborn(relay.port, `${head}8\r\n{"text":\r\n`);
  await client.waitFor('"}');
  // When a later request is answered, the first answer is over for the relay, too.
  await call(relay.port, '/healthz');
  client.socket.write('no size\r\n');
  client.socket.once('end', () => client.socket.end());
  await client.closed;
  expect(client.text().match(/HTTP\/1\.1 \d+/g)).toEqual(['HTTP/1.1 200']);
});

test('a connection that is over is forgotten', async () => {
  const server = createServer();
  const logger = createLogger('silent');
  const connections = serveConnections(server, express(), { logger, bounds });
  const accepted = new Promise<Socket>((resolve) => server.once('connection', resolve));
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
  cleanUps.push(() => new Promise((resolve) => server.close(resolve)));
  const client = stubborn((server.address() as AddressInfo).port, '');
  const socket = await accepted;
  client.socket.destroy();
  await new Promise((resolve) => socket.once('close', resolve));
  const destroy = jest.spyOn(socket, 'destroy');
  connections.closeUnlessAnswering();
  expect(destroy).not.toHaveBeenCalled();
});

/** The server of a relay, which a request to it shows. */
async function serverOf({ relay: { port } }: RelayAndUpstream): Promise<Server> {
  const servers = new Set<Server>();
  const onRequest = (message: unknown) => servers.add((message as { server: Server }).server);
  subscribe('http.server.request.start', onRequest);
  await call(port, '/healthz');
  unsubscribe('http.server.request.start', onRequest);
  return [...servers].find((server) => (server.address() as { port: number })?.port === port) as Server;
}

describe('the server', () => {
  test('answers a head that never ends, and closes its connection', async () => {
    const pair = await start();
    const server = await serverOf(pair);
    expect(server.headersTimeout).toBe(10_000);
    server.headersTimeout = 500;
    const client = connection(pair.relay.port, 'GET /healthz HTTP/1.1\r\nHost: a\r\n');
    const drip = setInterval(() => client.socket.write('X: y\r\n'), 100);
    await client.closed;
    clearInterval(drip);
    expectProblem(parseAnswer(client.text()), 408, 'request_timeout');
    // Without a setting, Node.js looks for such heads only every 30 s.
  }, 25_000);

  test('keeps an idle connection for 75 seconds, as its header says', async () => {
    const pair = await start();
    const client = connection(pair.relay.port, 'GET /healthz HTTP/1.1\r\nHost: a\r\n\r\n');
    await client.waitFor('"}');
    expect(parseAnswer(client.text()).headers).toMatchObject({ 'keep-alive': 'timeout=75' });
  });

  test('waits for a whole request longer than for an upload, but not without end', async () => {
    const pair = await start();
    const { requestTimeout } = await serverOf(pair);
    expect(requestTimeout).toBeGreaterThan(600_000);
    expect(requestTimeout).toBeLessThan(700_000);
  });
});

describe('shutting down', () => {
  test('cuts connections that do not end by themselves, after a time for the final event', async () => {
    stopClock();
    const pair = await start({ SHUTDOWN_GRACE_MS: '0' });
    const head = 'POST /auth/login HTTP/1.1\r\nHost: a\r\nContent-Type: application/json\r\n';
    const client = connection(pair.relay.port, `${head}Expect: 100-continue\r\nContent-Length: 20\r\n\r\n{`);
    await client.waitFor('100 Continue');
    const closing = pair.relay.close();
    pass(0);
    await until(() => pair.relay.parts.lifecycle.isDraining());
    pass(FINAL_EVENT_MS);
    await closing;
    await client.closed;
    expect(parseAnswer(client.text()).status).toBe(100);
  });

  test('closes a connection at the end of its last answer, not at the next check', async () => {
    const pair = await start();
    const client = pair.ask();
    await client.waitFor('\r\n\r\n');
    // There is no check of silent connections here.
    jest.spyOn(globalThis, 'setInterval').mockImplementation(() => setTimeout(() => {}, 0));
    const closing = pair.relay.close();
    await until(() => pair.relay.parts.lifecycle.isDraining());
    pair.upstream.sockets[0]?.write(Buffer.concat([chunk('data: 1\n\n'), Buffer.from(LAST_CHUNK)]));
    await closing;
    await client.closed;
    expect(client.text()).toContain(LAST_CHUNK);
  });

  test('waits a moment for the request of a new connection, and answers it', async () => {
    const pair = await start();
    const client = connection(pair.relay.port, '');
    // Connections are accepted in order: when a later one is served, this one was accepted.
    await call(pair.relay.port, '/healthz');
    // The check of silent connections does not come.
    jest.spyOn(globalThis, 'setInterval').mockImplementation(() => setTimeout(() => {}, 0));
    const closing = pair.relay.close();
    await until(() => pair.relay.parts.lifecycle.isDraining());
    client.socket.write(rawMessage({ cookie: pair.cookie }));
    await client.closed;
    expectProblem(parseAnswer(client.text()), 503, 'draining');
    await closing;
  });
});
