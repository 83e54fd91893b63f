import { randomBytes } from 'node:crypto';
import { createServer, type IncomingMessage, request, type Server, type ServerResponse } from 'node:http';
import { createServer as createTlsServer } from 'node:https';
import type { AddressInfo } from 'node:net';
import { PassThrough } from 'node:stream';
import { setTimeout as sleep, setImmediate as turn } from 'node:timers/promises';
import tls from 'node:tls';
import { afterEach, beforeAll, expect, test } from '@jest/globals';
import { freeSent, operationProxy } from '../../../src/relay/operations/operation-proxy.ts';
import { secret } from '../../../src/secret.ts';
import { call } from '../../harness/clients/call.ts';
import { type Identity, selfSigned } from '../../harness/faults/fake-load-balancer.ts';

let identity: Identity;
beforeAll(() => {
  identity = selfSigned();
  tls.setDefaultCACertificates([identity.cert]);
});

const servers: Server[] = [];
afterEach(() => {
  for (const server of servers.splice(0)) {
    server.closeAllConnections();
    server.close();
  }
});
const listen = async (server: Server): Promise<number> => {
  servers.push(server);
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
  return (server.address() as AddressInfo).port;
};

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
  const server = createServer(async (req, res) => {
    const stream = new PassThrough({ highWaterMark: 65_536 });
    const signal = new AbortController().signal;
    const request = { path: '/blob', headers: {}, stream };
    const noted = { onLeaving: () => {}, onSent: () => {} };
    const answered = proxy(req, res, { request, key: secret('k'), signal, ...noted });
    let first = 0;
    for (const [at, chunk] of chunks.entries()) {
      if (!stream.write(chunk)) await new Promise((resolve) => stream.once('drain', resolve));
      await turn();
      while (first < at && chunks[first]?.length === 0) first += 1;
      mostKept = Math.max(mostKept, (at - first) * pieceBytes);
    }
    stream.end();
    (await answered).resume();
    res.end();
  });
  await call(await listen(server), '/here', { method: 'POST' });
  const freed = chunks.filter(({ length }) => length === 0).length / chunks.length;
  return { received: Buffer.concat(received), freed, mostKept };
}

test.each([
  ['at once', 'http', 0],
  ['slowly', 'http', 5],
  ['slowly', 'https', 5],
])(
  'a streamed body that is read %s by %s arrives whole, and its chunks are freed once they have left',
  async (_how, protocol, pauseMs) => {
    const body = randomBytes(6_000_000);
    const { received, freed } = await carry(body, { protocol, pieceBytes: 60_000, pauseMs });
    expect(received.equals(body)).toBe(true);
    expect(freed).toBeGreaterThan(0.9);
  },
);

test.each([
  ['http', 4_096],
  ['http', 16_384],
  ['https', 4_096],
  ['https', 16_384],
])('a body that comes by %s in pieces of %d bytes is not kept in memory', async (protocol, pieceBytes) => {
  const body = randomBytes(4_000_000);
  const { received, mostKept } = await carry(body, { protocol, pieceBytes });
  expect(received.equals(body)).toBe(true);
  expect(mostKept).toBeLessThan(400_000);
});

test('a chunk that has not left is kept, whatever event comes', () => {
  const waiting = request({ port: 1, host: '127.0.0.1', method: 'POST' }).on('error', () => {});
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
