import { subscribe, unsubscribe } from 'node:diagnostics_channel';
import type { Server } from 'node:http';
import { afterEach, describe, expect, jest, test } from '@jest/globals';
import { call, expectProblem, parseAnswer } from './support/call.ts';
import { type RawClient, rawClient, rawMessage } from './support/raw-client.ts';
import { chunk, LAST_CHUNK, STREAM_HEAD } from './support/raw-upstream.ts';
import { type RelayAndUpstream, startRelayAndUpstream, until } from './support/relay-and-upstream.ts';
import { sleep } from './support/sleep.ts';
import { whileAwake } from './support/while-awake.ts';

let pair: RelayAndUpstream;
const clients: RawClient[] = [];
afterEach(async () => {
  jest.restoreAllMocks();
  for (const { socket } of clients.splice(0)) socket.destroy();
  await pair.close();
});

async function start(environment: Record<string, string> = {}): Promise<void> {
  pair = await startRelayAndUpstream((socket) => socket.write(STREAM_HEAD), environment);
}

function connection(bytes: string): RawClient {
  const client = rawClient(pair.relay.port, bytes);
  clients.push(client);
  return client;
}

/** The server of a relay, which a request to it shows. */
async function serverOf({ relay: { port } }: RelayAndUpstream): Promise<Server> {
  const servers = new Set<Server>();
  const onRequest = (message: unknown) => servers.add((message as { server: Server }).server);
  subscribe('http.server.request.start', onRequest);
  await call(port, '/healthz');
  unsubscribe('http.server.request.start', onRequest);
  return [...servers].find((server) => (server.address() as { port: number })?.port === port) as Server;
}

test.concurrent('the server answers a head that never ends, and closes its connection', async () => {
  const slow = await startRelayAndUpstream(() => {});
  const server = await serverOf(slow);
  expect(server.headersTimeout).toBe(10_000);
  server.headersTimeout = 500;
  const client = rawClient(slow.relay.port, 'GET /healthz HTTP/1.1\r\nHost: a\r\n');
  const startedAt = performance.now();
  const drip = setInterval(() => client.socket.write('X: y\r\n'), 100);
  await client.closed;
  clearInterval(drip);
  await slow.close();
  expectProblem(parseAnswer(client.text()), 408, 'request_timeout');
  expect(performance.now() - startedAt).toBeGreaterThan(400);
  // Up to two seconds more until the next check; without a setting, Node.js checks every thirty.
  expect(performance.now() - startedAt).toBeLessThan(20_000);
}, 40_000);

test.concurrent('shutting down cuts connections that do not end by themselves, after a time for the final event', async () => {
  const { relay, upstream } = await startRelayAndUpstream((socket) => socket.write(STREAM_HEAD), {
    SHUTDOWN_GRACE_MS: '0',
  });
  const head = 'POST /auth/login HTTP/1.1\r\nHost: a\r\nContent-Type: application/json\r\n';
  const client = rawClient(relay.port, `${head}Expect: 100-continue\r\nContent-Length: 20\r\n\r\n{`);
  await client.waitFor('100 Continue');
  const startedAt = performance.now();
  await relay.close();
  await client.closed;
  expect(parseAnswer(client.text()).status).toBe(100);
  await upstream.close();
  // Six seconds; the timeout of a body would be thirty.
  expect(performance.now() - startedAt).toBeGreaterThan(3000);
  expect(performance.now() - startedAt).toBeLessThan(20_000);
}, 40_000);

describe('the server', () => {
  test('keeps an idle connection longer than load balancers do, as its header says', async () => {
    await start();
    const client = connection('GET /healthz HTTP/1.1\r\nHost: a\r\n\r\n');
    await client.waitFor('"}');
    expect(parseAnswer(client.text()).headers).toMatchObject({ 'keep-alive': 'timeout=620' });
  });

  test('waits for a whole request longer than for an upload, but not without end', async () => {
    await start();
    const { requestTimeout } = await serverOf(pair);
    expect(requestTimeout).toBeGreaterThan(600_000);
    expect(requestTimeout).toBeLessThan(700_000);
  });
});

describe('shutting down', () => {
  test('closes a connection at the end of its last answer, not at the next check', async () => {
    await start({ SHUTDOWN_GRACE_MS: '60000' });
    const client = pair.ask();
    await client.waitFor('\r\n\r\n');
    // There is no check of silent connections here.
    jest.spyOn(globalThis, 'setInterval').mockImplementation(() => setTimeout(() => {}, 0));
    const closing = pair.relay.close();
    await until(() => pair.relay.lifecycle.isDraining());
    pair.upstream.sockets[0]?.write(Buffer.concat([chunk('data: 1\n\n'), Buffer.from(LAST_CHUNK)]));
    await closing;
    await client.closed;
    expect(client.text()).toContain(LAST_CHUNK);
  });

  async function writeWhileDraining(): Promise<void> {
    await start({ SHUTDOWN_GRACE_MS: '60000' });
    const client = connection('');
    // Connections are accepted in order: when a later one is served, this one was accepted.
    await call(pair.relay.port, '/healthz');
    const closing = pair.relay.close();
    await until(() => pair.relay.lifecycle.isDraining());
    await sleep(20);
    client.socket.write(rawMessage({ cookie: pair.cookie }));
    await client.closed;
    expectProblem(parseAnswer(client.text()), 503, 'draining');
    await closing;
  }

  test(
    'waits a moment for the request of a new connection, and answers it',
    whileAwake(writeWhileDraining, () => pair.close()),
  );

  test('has nothing to end after the grace, if all streams have ended before', async () => {
    await start({ SHUTDOWN_GRACE_MS: '50' });
    const endAll = jest.spyOn(pair.relay.open, 'endAll');
    await pair.relay.close();
    await sleep(100);
    expect(endAll).not.toHaveBeenCalled();
  });
});
