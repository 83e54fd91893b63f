import { randomBytes } from 'node:crypto';
import { once } from 'node:events';
import {
  Agent,
  createServer,
  get,
  request as httpRequest,
  type IncomingMessage,
  type ServerResponse,
} from 'node:http';
import { createServer as createTlsServer } from 'node:https';
import { type AddressInfo, createServer as createTcpServer, type Server, type Socket } from 'node:net';
import { PassThrough, Readable } from 'node:stream';
import { setTimeout as sleep, setImmediate as turn } from 'node:timers/promises';
import tls from 'node:tls';
import { afterEach, beforeAll, expect, test } from '@jest/globals';
import { Problem } from '../../../src/errors.ts';
import { freeSent, operationProxy, readInPlace } from '../../../src/relay/operations/operation-proxy.ts';
import { operationSender } from '../../../src/relay/operations/send-operation.ts';
import { secret } from '../../../src/secret.ts';
import { call } from '../../harness/clients/call.ts';
import { jsonAnswer } from '../../harness/clients/suspend.ts';
import { until } from '../../harness/clock/until.ts';
import { type Identity, selfSigned } from '../../harness/faults/fake-load-balancer.ts';

let identity: Identity;
beforeAll(() => {
  identity = selfSigned();
  tls.setDefaultCACertificates([identity.cert]);
});

const servers: Server[] = [];
afterEach(() => {
  for (const server of servers.splice(0)) {
    if ('closeAllConnections' in server) (server.closeAllConnections as () => void)();
    server.close();
  }
});
async function listen(server: Server): Promise<number> {
  servers.push(server);
  await once(server.listen(0, '127.0.0.1'), 'listening');
  return (server.address() as AddressInfo).port;
}
const { signal } = new AbortController();
const SENDING = { key: secret('k'), signal, onLeaving: () => {}, onSent: () => {} };
/** Lets a server answer one request by `run`. */
async function serving(run: (req: IncomingMessage, res: ServerResponse) => Promise<unknown>) {
  const port = await listen(createServer(async (req, res) => void res.end(String(await run(req, res)))));
  return (await call(port, '/here', { method: 'POST' })).body;
}

test('a request has left as soon as a part of it may have, and is sent when all of it is', async () => {
  const calls: string[] = [];
  // It takes the first bytes only.
  const service = createServer().on('connection', (socket) => {
    socket.removeAllListeners('data').once('data', () => socket.destroy());
  });
  const proxy = operationProxy(new URL(`http://127.0.0.1:${await listen(service)}`));
  await serving(async (req, res) => {
    const body = Buffer.alloc(64 * 1024 * 1024);
    const request = { path: '/large', headers: { 'content-length': String(body.length) }, body };
    const noted = { onLeaving: () => calls.push('leaving'), onSent: () => calls.push('sent') };
    await proxy(req, res, { ...SENDING, request, ...noted }).catch(() => calls.push('failed'));
    service.close();
    await proxy(req, res, { ...SENDING, request, ...noted }).catch(() => calls.push('no one'));
  });
  expect(calls).toEqual(['leaving', 'failed', 'no one']);
});

test('a request that is sent many times does not reach the listener limit of Node.js', async () => {
  const arrived: string[] = [];
  const service = createServer(async (req, res) => {
    arrived.push(`${req.method} ${req.url} ${Buffer.concat(await req.toArray())}`);
    res.end();
  });
  const proxy = operationProxy(new URL(`http://127.0.0.1:${await listen(service)}`));
  const counts: number[][] = [];
  const isSame = await serving(async (req, res) => {
    const body = Buffer.from('{"n":1}');
    const request = { path: '/stop', headers: { 'content-length': String(body.length) }, body };
    const { url } = req;
    for (let n = 0; n < 8; n += 1) {
      (await proxy(req, res, { ...SENDING, request })).resume();
      for (const event of ['close', 'error']) counts.push([res.listenerCount(event), res.getMaxListeners()]);
      for (const event of ['error', 'data']) counts.push([req.listenerCount(event), req.getMaxListeners()]);
    }
    return req.url === url;
  });
  expect([isSame, counts.length]).toEqual(['true', 32]);
  expect(counts.filter(([listeners = 0, most = 0]) => listeners > most)).toEqual([]);
  expect(arrived).toEqual(Array(8).fill('POST /stop {"n":1}'));
});

test('a connection is closed on which the service has answered before it has read the form', async () => {
  /** More than the buffers between two sockets hold. */
  const MUCH = 18_000_000;
  const sockets: Socket[] = [];
  const service = createTcpServer((socket) => {
    sockets.push(socket.on('error', () => {}));
    socket.once('data', () => socket.pause().write(jsonAnswer('200 OK', { blobId: 'b1' })));
  });
  const baseUrl = new URL(`http://127.0.0.1:${await listen(service)}`);
  const send = operationSender({ baseUrl, responseTimeoutMs: 60_000 });
  // All of it is handed over at once, and most of it waits in the sender's socket.
  const upload = { signal, done: Promise.resolve() };
  const request = { path: '/blob', headers: {}, stream: Readable.from([Buffer.alloc(MUCH)]) };
  const sending = { ...SENDING, operation: {}, upload, request, mask: String, onStatus: () => {} };
  const body = await serving(async (req, res) => {
    const verdict = await send(req, res, sending);
    return verdict instanceof Problem ? verdict.code : verdict.body;
  });
  expect(body).toBe('{"blobId":"b1"}');
  const [socket] = sockets as [Socket];
  socket.on('data', () => {}).resume();
  await until(() => socket.readableEnded || socket.destroyed || socket.bytesRead >= MUCH);
  expect(socket.bytesRead).toBeLessThan(MUCH);
  socket.destroy();
});

/** Sends `body` in pieces that have memory of their own. Returns what arrived, and how it was freed. */
async function carry(
  body: Buffer,
  sending: { readonly protocol: string; readonly pieceBytes: number; readonly pauseMs?: number },
) {
  const { protocol, pieceBytes, pauseMs = 0 } = sending;
  const received: Buffer[] = [];
  const answer = async (req: IncomingMessage, res: ServerResponse) => {
    for await (const bytes of req) {
      received.push(bytes as Buffer);
      if (pauseMs > 0 && received.length % 10 === 0) await sleep(pauseMs);
    }
    res.end('{}');
  };
  const service = protocol === 'https' ? createTlsServer(identity, answer) : createServer(answer);
  const proxy = operationProxy(new URL(`${protocol}://127.0.0.1:${await listen(service)}`));
  const chunks: Buffer[] = [];
  for (let at = 0; at < body.length; at += pieceBytes)
    chunks.push(Buffer.from(new Uint8Array(body.subarray(at, at + pieceBytes)).buffer));
  let mostKept = 0;
  await serving(async (req, res) => {
    const stream = new PassThrough({ highWaterMark: 65_536 });
    const answered = proxy(req, res, { ...SENDING, request: { path: '/blob', headers: {}, stream } });
    let first = 0;
    for (const [at, chunk] of chunks.entries()) {
      if (!stream.write(chunk)) await once(stream, 'drain');
      await turn();
      while (first < at && chunks[first]?.length === 0) first += 1;
      mostKept = Math.max(mostKept, (at - first) * pieceBytes);
    }
    stream.end();
    (await answered).resume();
  });
  const freed = chunks.filter(({ length }) => length === 0).length / chunks.length;
  return { received: Buffer.concat(received), freed, mostKept };
}

test.each([
  ['at once', 'http', 60_000, 0],
  ['slowly', 'https', 60_000, 5],
  ['at once, in small pieces', 'http', 4_096, 0],
  ['at once, in small pieces', 'https', 16_384, 0],
])(
  'a body that is read %s by %s arrives whole, and is not kept once it has left',
  async (...[, protocol, pieceBytes, pauseMs]) => {
    const body = randomBytes(6_000_000);
    const { received, freed, mostKept } = await carry(body, { protocol, pieceBytes, pauseMs });
    expect(received.equals(body)).toBe(true);
    expect(freed).toBeGreaterThan(0.9);
    if (pieceBytes < 60_000) expect(mostKept).toBeLessThan(400_000);
  },
);

test('a chunk that has not left is kept, whatever event comes', () => {
  const waiting = httpRequest({ port: 1, host: '127.0.0.1', method: 'POST' }).on('error', () => {});
  const body = new PassThrough();
  freeSent(body, waiting);
  body.pipe(waiting);
  const chunk = Buffer.from(new Uint8Array(60_000).buffer);
  body.emit('data', chunk);
  expect(waiting.writableLength).toBeGreaterThan(0);
  waiting.emit('drain');
  expect(chunk.length).toBe(60_000);
  waiting.destroy();
});

test('what a reader keeps of its answers stays as it came, on a connection that is used again', async () => {
  const files = [randomBytes(3_000_000), randomBytes(3_000_000)];
  let asked = 0;
  const server = createServer((_req, res) => res.end(files[asked++]));
  const port = await listen(server);
  const agent = readInPlace(new Agent({ keepAlive: true }));
  const sockets = new Set<Socket>();
  const received: Buffer[] = [];
  for (const _file of files) {
    const kept: Buffer[] = [];
    await new Promise<void>((resolve) => {
      get({ port, host: '127.0.0.1', agent }, (answer) => {
        sockets.add(answer.socket);
        answer.on('data', (bytes: Buffer) => {
          kept.push(bytes);
          // A reader that pauses gets the rest all the same.
          if (kept.length % 10 === 0) {
            answer.pause();
            setTimeout(() => answer.resume(), 2);
          }
        });
        answer.on('end', resolve);
      });
    });
    received.push(Buffer.concat(kept));
    await new Promise(setImmediate);
  }
  expect(sockets.size).toBe(1);
  expect(received.map((bytes, n) => bytes.equals(files[n] as Buffer))).toEqual([true, true]);
  agent.destroy();
});

test('an idle connection on which something comes is closed', async () => {
  const connections: Socket[] = [];
  const server = createTcpServer((socket) => {
    connections.push(socket);
    socket.on('data', () => socket.write('HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok'));
  });
  const port = await listen(server);
  const agent = readInPlace(new Agent({ keepAlive: true }));
  await new Promise<void>((resolve) => {
    get({ port, host: '127.0.0.1', agent }, (answer) => answer.resume().on('end', resolve));
  });
  await new Promise(setImmediate);
  const [connection] = connections as [Socket];
  const closed = new Promise((resolve) => connection.once('close', resolve));
  connection.write('HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nevil');
  await closed;
  agent.destroy();
});
