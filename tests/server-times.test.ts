import { subscribe, unsubscribe } from 'node:diagnostics_channel';
import type { Server } from 'node:http';
import { afterEach, describe, expect, jest, test } from '@jest/globals';
import { FINAL_EVENT_MS } from '../src/process/server.ts';
import { call, expectProblem, parseAnswer } from './harness/clients/call.ts';
import { type RawClient, rawClient, rawMessage } from './harness/clients/raw-client.ts';
import { pass, stopClock } from './harness/clock/stop-clock.ts';
import { until } from './harness/clock/until.ts';
import { type RelayAndUpstream, startRelayAndUpstream } from './harness/relay/relay-and-upstream.ts';
import { chunk, LAST_CHUNK, STREAM_HEAD } from './harness/service/raw-upstream.ts';

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

describe('the server', () => {
  test('answers a head that never ends, and closes its connection', async () => {
    await start();
    const server = await serverOf(pair);
    expect(server.headersTimeout).toBe(10_000);
    server.headersTimeout = 500;
    const client = connection('GET /healthz HTTP/1.1\r\nHost: a\r\n');
    const drip = setInterval(() => client.socket.write('X: y\r\n'), 100);
    await client.closed;
    clearInterval(drip);
    expectProblem(parseAnswer(client.text()), 408, 'request_timeout');
    // Without a setting, Node.js looks for such heads only every 30 s.
  }, 25_000);

  test('keeps an idle connection for 75 seconds, as its header says', async () => {
    await start();
    const client = connection('GET /healthz HTTP/1.1\r\nHost: a\r\n\r\n');
    await client.waitFor('"}');
    expect(parseAnswer(client.text()).headers).toMatchObject({ 'keep-alive': 'timeout=75' });
  });

  test('waits for a whole request longer than for an upload, but not without end', async () => {
    await start();
    const { requestTimeout } = await serverOf(pair);
    expect(requestTimeout).toBeGreaterThan(600_000);
    expect(requestTimeout).toBeLessThan(700_000);
  });
});

describe('shutting down', () => {
  test('cuts connections that do not end by themselves, after a time for the final event', async () => {
    stopClock();
    await start({ SHUTDOWN_GRACE_MS: '0' });
    const head = 'POST /auth/login HTTP/1.1\r\nHost: a\r\nContent-Type: application/json\r\n';
    const client = connection(`${head}Expect: 100-continue\r\nContent-Length: 20\r\n\r\n{`);
    await client.waitFor('100 Continue');
    const closing = pair.relay.close();
    pass(0);
    await until(() => pair.relay.lifecycle.isDraining());
    pass(FINAL_EVENT_MS);
    await closing;
    await client.closed;
    expect(parseAnswer(client.text()).status).toBe(100);
  });

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

  test('waits a moment for the request of a new connection, and answers it', async () => {
    await start({ SHUTDOWN_GRACE_MS: '60000' });
    const client = connection('');
    // Connections are accepted in order: when a later one is served, this one was accepted.
    await call(pair.relay.port, '/healthz');
    // The check of silent connections does not come.
    jest.spyOn(globalThis, 'setInterval').mockImplementation(() => setTimeout(() => {}, 0));
    const closing = pair.relay.close();
    await until(() => pair.relay.lifecycle.isDraining());
    client.socket.write(rawMessage({ cookie: pair.cookie }));
    await client.closed;
    expectProblem(parseAnswer(client.text()), 503, 'draining');
    await closing;
  });
});
