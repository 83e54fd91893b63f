import { createServer, type Server } from 'node:http';
import type { AddressInfo, Socket } from 'node:net';
import { afterAll, beforeAll, beforeEach, expect, test } from '@jest/globals';
import express from 'express';
import fc from 'fast-check';
import { connectionBounds } from '../../src/arrive/connection-bounds.ts';
import { serveConnections } from '../../src/arrive/serve-connections.ts';
import { createLogger } from '../../src/logger.ts';
import { rawClient } from '../harness/clients/raw-client.ts';

/** As `feed-parser.ts` has it. */
const PIECE_BYTES = 1024;

let server: Server;
let bodies: string[] = [];
/** The length of each piece that the parser has got, and of each read once the parser has had it. */
let given: number[] = [];
let left: number[] = [];

beforeAll(async () => {
  const app = express();
  app.post('/', (req, res) => {
    const pieces: Buffer[] = [];
    req.on('data', (piece: Buffer) => void pieces.push(piece));
    req.on('end', () => {
      bodies.push(Buffer.concat(pieces).toString('latin1'));
      res.end('done');
    });
  });
  server = createServer();
  server.on('connection', (socket: Socket) => {
    const [parse] = socket.listeners('data');
    socket.removeListener('data', parse as (data: Buffer) => void);
    socket.on('data', (piece: Buffer) => {
      given.push(piece.length);
      parse?.call(socket, piece);
    });
  });
  const bounds = connectionBounds({ most: 100, mostOfAddress: 100 });
  serveConnections(server, app, { logger: createLogger('silent'), bounds });
  server.on('connection', (socket: Socket) => socket.on('data', (data: Buffer) => left.push(data.length)));
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
});
afterAll(() => {
  server.closeAllConnections();
  server.close();
});
beforeEach(() => {
  bodies = [];
});

/** Sends the parts one after the other on one connection, each once the one before is written. */
async function send(parts: readonly Buffer[]) {
  [given, left] = [[], []];
  const client = rawClient((server.address() as AddressInfo).port, '');
  for (const part of parts) await new Promise<unknown>((sent) => client.socket.write(part, sent));
  await client.closed;
}
const request = (body: Buffer, { padding = 0, isChunked = false, isLast = false }) =>
  Buffer.concat([
    Buffer.from(
      [
        ...['POST / HTTP/1.1', 'Host: a', `X-Padding: ${'x'.repeat(padding)}`],
        ...(isLast ? ['Connection: close'] : []),
        isChunked ? 'Transfer-Encoding: chunked' : `Content-Length: ${body.length}`,
        '\r\n',
      ].join('\r\n'),
    ),
    ...(isChunked && body.length > 0
      ? [Buffer.from(`${body.length.toString(16)}\r\n`), body, Buffer.from('\r\n')]
      : []),
    isChunked ? Buffer.from('0\r\n\r\n') : body,
  ]);

test(
  'all bodies arrive as they are, however the bytes are cut, and only inside of a body with a length the parser gets more than a small piece',
  () =>
    fc.assert(
      fc.asyncProperty(
        fc.array(
          fc.record({
            length: fc.oneof(fc.integer({ max: 30, min: 0 }), fc.integer({ min: 0, max: 20_000 })),
            byte: fc.constantFrom(...'xA /\r\n'),
            padding: fc.integer({ min: 0, max: 4000 }),
            isChunked: fc.boolean(),
          }),
          { minLength: 1, maxLength: 3 },
        ),
        fc.array(fc.nat(), { maxLength: 4 }),
        async (requests, cuts) => {
          bodies = [];
          const all = requests.map(({ length, byte, ...how }, n) =>
            request(Buffer.alloc(length, byte), { ...how, isLast: n === requests.length - 1 }),
          );
          const bytes = Buffer.concat(all);
          const ends = [...cuts.map((cut) => cut % bytes.length), bytes.length].sort((a, b) => a - b);
          await send(
            ends.map((end, n) => bytes.subarray(ends[n - 1] ?? 0, end)).filter(({ length }) => length),
          );
          expect(bodies).toEqual(requests.map(({ length, byte }) => byte.repeat(length)));
          let from = 0;
          const inside = all.map((one, n) => {
            from += one.length;
            const { length, isChunked } = requests[n] as (typeof requests)[number];
            return isChunked ? [0, 0] : [from - length, from];
          });
          let at = 0;
          for (const length of given) {
            const isInside = inside.some(([start = 0, end = 0]) => at >= start && at + length <= end);
            if (!isInside) expect(length).toBeLessThanOrEqual(PIECE_BYTES);
            at += length;
          }
        },
      ),
      { numRuns: 60 },
    ),
  60_000,
);

test('a large body is given as it comes, and what was read of it is freed at once', async () => {
  const body = Buffer.alloc(2_000_000, 'a');
  await send([request(body, { padding: 3000, isLast: true })]);
  expect(bodies).toEqual([String(body)]);
  const small = given.filter((length) => length <= PIECE_BYTES);
  // Those of the head, some of which may be cut, and the end of the body.
  expect(small.length).toBeLessThanOrEqual(12);
  expect(given.length).toBeLessThanOrEqual(left.length + small.length);
  expect(left.filter((length) => length === 0).length).toBeGreaterThan(left.length * 0.8);
});
