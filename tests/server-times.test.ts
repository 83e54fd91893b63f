import { subscribe, unsubscribe } from 'node:diagnostics_channel';
import type { Server } from 'node:http';
import { afterEach, describe, expect, jest, test } from '@jest/globals';
import { call, expectProblem, parseAnswer } from './support/call.ts';
import { type Pair, startPair, until } from './support/pair.ts';
import { type RawClient, rawClient, rawMessage } from './support/raw-client.ts';
import { chunk, LAST_CHUNK, STREAM_HEAD } from './support/raw-upstream.ts';

let pair: Pair;
const clients: RawClient[] = [];
afterEach(async () => {
  jest.restoreAllMocks();
  for (const { socket } of clients.splice(0)) socket.destroy();
  await pair.close();
});

async function start(environment: Record<string, string> = {}): Promise<void> {
  pair = await startPair((socket) => socket.write(STREAM_HEAD), environment);
}

function connection(bytes: string): RawClient {
  const client = rawClient(pair.relay.port, bytes);
  clients.push(client);
  return client;
}

describe('the server', () => {
  test('keeps an idle connection longer than load balancers do, and says so', async () => {
    await start();
    const client = connection('GET /healthz HTTP/1.1\r\nHost: a\r\n\r\n');
    await client.waitFor('"}');
    expect(parseAnswer(client.text()).headers).toMatchObject({ 'keep-alive': 'timeout=620' });
  });

  test('waits for a whole request longer than for a body, which can be refused in order, but not for good', async () => {
    const servers = new Set<Server>();
    const onRequest = (message: unknown) => servers.add((message as { server: Server }).server);
    subscribe('http.server.request.start', onRequest);
    await start();
    await call(pair.relay.port, '/healthz');
    unsubscribe('http.server.request.start', onRequest);
    const relay = [...servers].find(
      (server) => (server.address() as { port: number })?.port === pair.relay.port,
    );
    expect(relay?.requestTimeout).toBeGreaterThan(30_000);
    expect(relay?.requestTimeout).toBeLessThan(120_000);
  });

  test('answers a head that never ends, and closes its connection', async () => {
    await start();
    const client = connection('GET /healthz HTTP/1.1\r\nHost: a\r\n');
    const startedAt = performance.now();
    const drip = setInterval(() => client.socket.write('X: y\r\n'), 500);
    await client.closed;
    clearInterval(drip);
    expectProblem(parseAnswer(client.text()), 408, 'request_timeout');
    // Ten seconds, and up to two more until that is looked at.
    expect(performance.now() - startedAt).toBeGreaterThan(9000);
    expect(performance.now() - startedAt).toBeLessThan(25_000);
  }, 40_000);
});

describe('shutting down', () => {
  test('closes a connection with the end of its last answer, not when it is next looked at', async () => {
    await start({ SHUTDOWN_GRACE_MS: '60000' });
    const client = pair.ask();
    await client.waitFor('\r\n\r\n');
    // Silent connections are never looked at.
    jest.spyOn(globalThis, 'setInterval').mockImplementation(() => setTimeout(() => {}, 0));
    const closing = pair.relay.close();
    await until(() => pair.relay.lifecycle.isDraining());
    pair.upstream.sockets[0]?.write(Buffer.concat([chunk('data: 1\n\n'), Buffer.from(LAST_CHUNK)]));
    await closing;
    await client.closed;
    expect(client.text()).toContain(LAST_CHUNK);
  });

  test('gives a connection that was just made a moment to say something, and answers that', async () => {
    await start({ SHUTDOWN_GRACE_MS: '60000' });
    const client = connection('');
    // Connections are accepted in their order: once a later one is served, so is this.
    await call(pair.relay.port, '/healthz');
    const closing = pair.relay.close();
    await until(() => pair.relay.lifecycle.isDraining());
    await new Promise((resolve) => setTimeout(resolve, 20));
    client.socket.write(rawMessage({ cookie: pair.cookie }));
    await client.closed;
    expectProblem(parseAnswer(client.text()), 503, 'draining');
    await closing;
  });

  test('cuts what does not end by itself, but only after a while for last words', async () => {
    await start({ SHUTDOWN_GRACE_MS: '0' });
    const head = 'POST /auth/login HTTP/1.1\r\nHost: a\r\nContent-Type: application/json\r\n';
    const client = connection(`${head}Expect: 100-continue\r\nContent-Length: 20\r\n\r\n{`);
    await client.waitFor('100 Continue');
    const startedAt = performance.now();
    await pair.relay.close();
    await client.closed;
    expect(parseAnswer(client.text()).status).toBe(100);
    // Six seconds; the body itself has thirty.
    expect(performance.now() - startedAt).toBeGreaterThan(3000);
    expect(performance.now() - startedAt).toBeLessThan(20_000);
  }, 40_000);

  test('in time leaves nothing to do at the end of the grace', async () => {
    await start({ SHUTDOWN_GRACE_MS: '50' });
    const endAll = jest.spyOn(pair.relay.open, 'endAll');
    await pair.relay.close();
    await new Promise((resolve) => setTimeout(resolve, 100));
    expect(endAll).not.toHaveBeenCalled();
  });
});
