import { once } from 'node:events';
import type { IncomingMessage, ServerResponse } from 'node:http';
import { createServer, type Server } from 'node:https';
import { type AddressInfo, connect, createServer as createTcpServer, type Socket } from 'node:net';
import { setTimeout as sleep } from 'node:timers/promises';
import tls, { type TLSSocket } from 'node:tls';
import { afterAll, afterEach, beforeAll, beforeEach, describe, expect, test } from '@jest/globals';
import { type Identity, selfSigned } from '../support/front.ts';
import { mostInWindow } from '../support/paced.ts';
import { startRelay, type TestRelay } from '../support/relay.ts';

let identity: Identity;
let trustedBefore: readonly string[];
beforeAll(() => {
  identity = selfSigned();
  trustedBefore = tls.getCACertificates('default');
  // Before the first connection of this file, and for this file only.
  tls.setDefaultCACertificates([identity.cert]);
});
afterAll(() => tls.setDefaultCACertificates(trustedBefore));

let service: TlsService;
let relay: TestRelay;
let cookie: string;
beforeEach(async () => {
  service = await startTlsService();
  relay = await startRelay(service.url);
  cookie = await relay.signIn();
});
/** What a test has opened besides, also if it fails; the last one closes first. */
const opened: { close(): Promise<void> }[] = [];
afterEach(async () => {
  for (const one of opened.splice(0).reverse()) await one.close();
  await relay.close();
  await service.close();
});

/** How the service ends a kept connection; `raw` is the TCP connection below it. */
type Close = (socket: TLSSocket, raw: Socket) => unknown;

interface TlsService {
  readonly url: string;
  /** Of each connection, in order, whether it resumed the session of an earlier one. */
  readonly reused: boolean[];
  /** The bodies of the messages that were answered, or are being answered. */
  readonly answered: string[];
  /** When each of them arrived, in ms. */
  readonly answeredAt: number[];
  /** The bodies of the messages that were met with `onSecond`. */
  readonly dropped: string[];
  /** What happens to the second message of a connection; it is answered if this is not set. */
  onSecond: Close | undefined;
  /** Ends the answers that are still open. */
  finish(): void;
  close(): Promise<void>;
}

/** A bot service behind TLS, whose answers begin with an event and end when `finish` is called. */
async function startTlsService(): Promise<TlsService> {
  const reused: boolean[] = [];
  const answered: string[] = [];
  const answeredAt: number[] = [];
  const dropped: string[] = [];
  const open: ServerResponse[] = [];
  const seen = new WeakSet<object>();
  const raws = new Map<number | undefined, Socket>();
  const server: Server = createServer(identity, async (req, res) => {
    const socket = req.socket as TLSSocket;
    const isSecond = seen.has(socket);
    seen.add(socket);
    const body = await bodyOf(req);
    if (isSecond && own.onSecond) {
      dropped.push(body);
      own.onSecond(socket, raws.get(socket.remotePort) as Socket);
      return;
    }
    answered.push(body);
    answeredAt.push(performance.now());
    open.push(res);
    res.setHeader('Content-Type', 'text/event-stream').write(`data: ${body}\n\n`);
  });
  server.on('connection', (raw: Socket) => raws.set(raw.remotePort, raw));
  server.on('secureConnection', (socket: TLSSocket) => reused.push(socket.isSessionReused()));
  server.listen(0, '127.0.0.1');
  await once(server, 'listening');
  const own: TlsService = {
    url: `https://127.0.0.1:${(server.address() as AddressInfo).port}`,
    reused,
    answered,
    answeredAt,
    dropped,
    onSecond: undefined,
    finish() {
      for (const res of open.splice(0)) res.end('data: end\n\n');
    },
    close: () =>
      new Promise((resolve) => {
        server.close(() => resolve());
        server.closeAllConnections();
      }),
  };
  return own;
}

/** Passes on to `port` what comes, but holds its first connection up for `heldMs` before anything goes through. */
async function startSlowDoor(port: string, heldMs: number) {
  const sockets: Socket[] = [];
  let heldUp = false;
  const server = createTcpServer((socket) => {
    const service = connect(Number(port), '127.0.0.1');
    sockets.push(
      socket.on('error', () => {}),
      service.on('error', () => {}),
    );
    service.pipe(socket);
    setTimeout(() => socket.pipe(service), heldUp ? 0 : heldMs);
    heldUp = true;
  }).listen(0, '127.0.0.1');
  await once(server, 'listening');
  return {
    url: `https://127.0.0.1:${(server.address() as AddressInfo).port}`,
    async close() {
      for (const socket of sockets) socket.destroy();
      await new Promise((resolve) => server.close(resolve));
    },
  };
}

/** Takes connections, and passes on to `port` what came on them only when it is opened. */
async function startClosedDoor(port: string) {
  const sockets: Socket[] = [];
  let open = () => {};
  const opened = new Promise<void>((resolve) => {
    open = resolve;
  });
  const server = createTcpServer(async (socket) => {
    sockets.push(socket.on('error', () => {}));
    await opened;
    const service = connect(Number(port), '127.0.0.1').on('error', () => {});
    sockets.push(service);
    socket.pipe(service).pipe(socket);
  }).listen(0, '127.0.0.1');
  await once(server, 'listening');
  return {
    url: `https://127.0.0.1:${(server.address() as AddressInfo).port}`,
    open,
    async close() {
      for (const socket of sockets) socket.destroy();
      await new Promise((resolve) => server.close(resolve));
    },
  };
}

async function bodyOf(req: IncomingMessage): Promise<string> {
  let body = '';
  for await (const data of req.setEncoding('utf8')) body += data;
  return body;
}

/** A message whose answer has begun; `rest` lets the service end it, and resolves with what came after. */
async function begin(body: string) {
  const response = await relay.send(cookie, { body });
  expect(response.status).toBe(200);
  const reader = (response.body as ReadableStream<Uint8Array<ArrayBuffer>>)
    .pipeThrough(new TextDecoderStream())
    .getReader();
  const { value: first } = await reader.read();
  const rest = async () => {
    service.finish();
    let text = '';
    for (let part = await reader.read(); !part.done; part = await reader.read()) text += part.value;
    return text;
  };
  return { first, rest };
}

async function exchange(body: string): Promise<string> {
  const { first, rest } = await begin(body);
  return first + (await rest());
}

describe('a bot service behind TLS', () => {
  test('streams its answer event by event (S1)', async () => {
    const { first, rest } = await begin('{"n":1}');
    expect(first).toBe('data: {"n":1}\n\n');
    expect(await rest()).toBe('data: end\n\n');
    expect(service.reused).toEqual([false]);
  });

  test('gets a second connection that resumes the session of the first', async () => {
    const one = await begin('{"n":1}');
    const two = await begin('{"n":2}');
    expect(service.reused).toEqual([false, true]);
    expect([await one.rest(), await two.rest()]).toEqual(['data: end\n\n', 'data: end\n\n']);
  });

  test.each<[string, Close]>([
    ['closes', (socket) => socket.destroy()],
    ['ends', (socket) => socket.end()],
    ['resets', (_socket, raw) => raw.resetAndDestroy()],
  ])('is sent no message once more if it %s the kept connection just then', async (_name, close) => {
    await exchange('{"n":1}');
    service.onSecond = close;
    expect((await relay.send(cookie, { body: '{"n":2}' })).status).toBe(502);
    expect(service.dropped).toEqual(['{"n":2}']);
    expect(service.answered).toEqual(['{"n":1}']);
    expect(service.reused).toHaveLength(1);
  });

  test('has the messages counted from when they left, not from when they began to connect (L1)', async () => {
    const [WINDOW, HELD] = [400, 250];
    const slowDoor = await startSlowDoor(new URL(service.url).port, HELD);
    opened.push(slowDoor);
    const paced = await startRelay(slowDoor.url, { RATE_LIMIT: '1', RATE_WINDOW_MS: String(WINDOW) });
    opened.push(paced);
    const signedIn = await paced.signIn();
    const arrivedAt = ['{"n":1}', '{"n":2}'].map(async (body) => {
      const response = await paced.send(signedIn, { body });
      const at = performance.now();
      await response.body?.cancel();
      return at;
    });
    const [first = 0, second = 0] = await Promise.all(arrivedAt);
    // Counted from its start, the first would leave the second a gap of WINDOW - HELD.
    expect(second - first).toBeGreaterThan(WINDOW - HELD / 2);
  });

  test('gets no more than fit into a window when messages that were held up could all leave at once (L1)', async () => {
    const WINDOW = 400;
    const door = await startClosedDoor(new URL(service.url).port);
    opened.push(door);
    const paced = await startRelay(door.url, {
      RATE_LIMIT: '2',
      RATE_WINDOW_MS: String(WINDOW),
      RATE_MAX_WAIT_MS: '10000',
    });
    opened.push(paced);
    const signedIn = await paced.signIn();
    const answers = Array.from({ length: 6 }, (_, n) => paced.send(signedIn, { body: `{"n":${n}}` }));
    // All of them have had their slot when they can connect.
    await sleep(3 * WINDOW);
    expect(service.answered).toEqual([]);
    door.open();
    expect((await Promise.all(answers)).map(({ status }) => status)).toEqual([200, 200, 200, 200, 200, 200]);
    expect(mostInWindow(service.answeredAt, WINDOW)).toBe(2);
  });

  test('gets no message that was held up and may not wait for the next slot', async () => {
    const WINDOW = 1200;
    const door = await startClosedDoor(new URL(service.url).port);
    opened.push(door);
    const environment = { RATE_LIMIT: '2', RATE_WINDOW_MS: String(WINDOW), RATE_MAX_WAIT_MS: '0' };
    const paced = await startRelay(door.url, environment);
    opened.push(paced);
    const signedIn = await paced.signIn();
    const send = (n: number) => paced.send(signedIn, { body: `{"n":${n}}` });
    const early = [send(0), send(1)];
    await sleep(1.1 * WINDOW);
    const late = [send(2), send(3)];
    await sleep(0.5 * WINDOW);
    door.open();
    const answers = await Promise.all([...early, ...late]);
    expect(answers.map(({ status }) => status)).toEqual([429, 429, 200, 200]);
    expect(await answers[0]?.json()).toMatchObject({ code: 'rate_limited' });
    expect([...service.answered].sort()).toEqual(['{"n":2}', '{"n":3}']);
  });

  test('is sent no message once more if a byte of an answer has come (S17)', async () => {
    await exchange('{"n":1}');
    service.onSecond = (socket) => socket.end('H');
    const response = await relay.send(cookie, { body: '{"n":2}' });
    expect(response.status).toBe(502);
    expect(service.dropped).toEqual(['{"n":2}']);
    expect(service.answered).toEqual(['{"n":1}']);
  });
});
