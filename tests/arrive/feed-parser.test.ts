import { randomBytes } from 'node:crypto';
import { createServer, type Server } from 'node:http';
import type { AddressInfo, Socket } from 'node:net';
import { setFlagsFromString } from 'node:v8';
import { runInNewContext } from 'node:vm';
import { afterEach, describe, expect, test } from '@jest/globals';
import express from 'express';
import { connectionBounds } from '../../src/arrive/connection-bounds.ts';
import { serveConnections } from '../../src/arrive/serve-connections.ts';
import { createLogger } from '../../src/logger.ts';
import { type RawClient, rawClient } from '../harness/clients/raw-client.ts';

/** As `feed-parser.ts` has it. */
const PIECE_BYTES = 1024;
const BODY = randomBytes(2_000_000);
const HEAD = 'POST / HTTP/1.1\r\nHost: a\r\n';

let server: Server;
let client: RawClient;
afterEach(() => {
  client.socket.destroy();
  server.closeAllConnections();
  server.close();
});

/** Sends `bytes` to a server that answers with the length of each body. Notes what its parser gets, and each read. */
async function send(bytes: Buffer, onFed: (socket: Socket) => void = () => {}) {
  const app = express();
  const bodies: Buffer[] = [];
  app.post('/', (req, res) => {
    const pieces: Buffer[] = [];
    req.on('data', (piece: Buffer) => void pieces.push(piece));
    req.on('end', () => {
      bodies.push(Buffer.concat(pieces));
      res.end(`${bodies.length} done`);
    });
  });
  const given: number[] = [];
  /** How long what was read is, once the parser has had it. */
  const left: number[] = [];
  let reads = 0;
  server = createServer();
  server.on('connection', (socket: Socket) => {
    const [parse] = socket.listeners('data');
    if (parse) socket.removeListener('data', parse as (data: Buffer) => void);
    socket.on('data', (piece: Buffer) => {
      given.push(piece.length);
      parse?.call(socket, piece);
    });
  });
  const bounds = connectionBounds({ most: 100, mostOfAddress: 100 });
  serveConnections(server, app, { logger: createLogger('silent'), bounds });
  server.on('connection', (socket: Socket) => {
    onFed(socket);
    socket.on('data', (data: Buffer) => {
      reads += 1;
      left.push(data.length);
    });
  });
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
  client = rawClient((server.address() as AddressInfo).port, bytes);
  return { bodies, given, left, reads: () => reads };
}

setFlagsFromString('--allow-natives-syntax');
/** Whether V8 holds an object by its shape, and not in a table that is several times as large. */
const hasShape = runInNewContext('(one) => %HasFastProperties(one)') as (one: unknown) => boolean;

describe('the parser of a connection', () => {
  test('has its listeners in little memory', async () => {
    const shapes: boolean[] = [];
    await send(Buffer.from(`${HEAD}Content-Length: 2\r\n\r\n{}`), (socket) =>
      shapes.push(hasShape(Reflect.get(socket, '_events'))),
    );
    await client.waitFor('1 done');
    expect(shapes).toEqual([true]);
  });

  test('gets a body with a length as it comes, and its head in small pieces', async () => {
    const padding = `X-Padding: ${'x'.repeat(3000)}\r\n`;
    const head = `${HEAD}${padding}Content-Length: ${BODY.length}\r\n\r\n`;
    const { bodies, given, reads } = await send(Buffer.concat([Buffer.from(head), BODY]));
    await client.waitFor('1 done');
    expect(bodies[0]?.equals(BODY)).toBe(true);
    const small = given.filter((length) => length <= PIECE_BYTES);
    // The head, some of whose pieces may be cut, and the end of the body.
    expect(small.length).toBeLessThanOrEqual((2 * head.length) / PIECE_BYTES + 3);
    expect(given.length).toBeLessThanOrEqual(reads() + small.length);
    expect(Math.max(...given)).toBeGreaterThan(PIECE_BYTES);
    for (const length of given.slice(0, 3)) expect(length).toBeLessThanOrEqual(PIECE_BYTES);
  });

  test('gets what follows a body in small pieces again', async () => {
    const request = Buffer.concat([
      Buffer.from(`${HEAD}Content-Length: 10000\r\n\r\n`),
      BODY.subarray(0, 10_000),
    ]);
    const next = Buffer.from(`${HEAD}X-Padding: ${'x'.repeat(3000)}\r\nContent-Length: 0\r\n\r\n`);
    const { bodies, given } = await send(Buffer.concat([request, next]));
    await client.waitFor('2 done');
    expect(bodies[0]?.equals(BODY.subarray(0, 10_000))).toBe(true);
    const behind = given.slice(-3);
    expect(behind.reduce((sum, length) => sum + length, 0)).toBeLessThanOrEqual(next.length);
    for (const length of behind) expect(length).toBeLessThanOrEqual(PIECE_BYTES);
  });

  test('gets a body without a length in small pieces', async () => {
    const chunk = Buffer.concat([
      Buffer.from('30d40\r\n'),
      BODY.subarray(0, 200_000),
      Buffer.from('\r\n0\r\n\r\n'),
    ]);
    const { bodies, given } = await send(
      Buffer.concat([Buffer.from(`${HEAD}Transfer-Encoding: chunked\r\n\r\n`), chunk]),
    );
    await client.waitFor('1 done');
    expect(bodies[0]?.equals(BODY.subarray(0, 200_000))).toBe(true);
    expect(Math.max(...given)).toBeLessThanOrEqual(PIECE_BYTES);
  });

  test('has its copy of a body, so that what was read is freed at once', async () => {
    const { bodies, left } = await send(
      Buffer.concat([Buffer.from(`${HEAD}Content-Length: ${BODY.length}\r\n\r\n`), BODY]),
    );
    await client.waitFor('1 done');
    expect(bodies[0]?.equals(BODY)).toBe(true);
    const freed = left.filter((length) => length === 0);
    expect(freed.length).toBeGreaterThan(left.length * 0.8);
  });
});
