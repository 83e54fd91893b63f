import { createHash } from 'node:crypto';
import { once } from 'node:events';
import { type IncomingMessage, request } from 'node:http';
import type { Socket } from 'node:net';
import { afterEach, expect } from '@jest/globals';
import {
  freshFolder,
  inFrontOf,
  signInAt,
  startProcess,
  stopProcesses,
  usersFile,
} from '../harness/relay/process.ts';
import { BOT_PATH, MESSAGE, USER } from '../harness/relay/relay.ts';
import { residentBytes, testWithProc, watchResident } from '../harness/relay/resident-memory.ts';
import {
  chunk,
  LAST_CHUNK,
  type RawUpstream,
  STREAM_HEAD,
  startRawUpstream,
} from '../harness/service/raw-upstream.ts';

const MB = 2 ** 20;
const PIECE_BYTES = 16 * 1024;
const STREAM_BYTES = 30 * MB;
const ROUNDS = Number(process.env.ROUNDS ?? 3);
/** By how much the peaks of two equal measurements may differ, in bytes. */
const NOISE = 8 * MB;
/**
 * A large event gives the collector less to do: with its own times, garbage waits longer, up to a bound. It collects so
 * often here that the peaks are of memory that is in use.
 */
const EAGER = ['--max-semi-space-size=1'];
const PREFIX = 'data: ';
/** Of a client that reads nothing; it must be far more than the relay may keep. */
const FLOOD_BYTES = Number(process.env.FLOOD_MB ?? 200) * MB;
const PADDING = '.'.repeat(PIECE_BYTES);
/** A service that cannot write for this long, in ms, is held back by backpressure. */
const HELD_MS = 1_000;

/** Streams by the names that messages give them: the pieces in which the service writes them. */
const STREAMS: Record<string, (n: number) => Buffer> = {
  'small events': () => Buffer.alloc(PIECE_BYTES, `${PREFIX}${'x'.repeat(56)}\n\n`),
  'one event of one line': (n) => lineAt(n, (piece) => piece.fill('x', n === 0 ? PREFIX.length : 0)),
  'one event of many lines': (n) => lineAt(n, (piece) => piece.fill(`${PREFIX}${'x'.repeat(57)}\n`)),
};
const SIZED = Object.keys(STREAMS);
STREAMS.numbered = (n) => {
  const event = Buffer.from(`data: ${n} ${PADDING}`).subarray(0, PIECE_BYTES);
  event.write('\n\n', PIECE_BYTES - 2);
  return event;
};

function lineAt(n: number, fill: (piece: Buffer) => Buffer): Buffer {
  const piece = fill(Buffer.alloc(PIECE_BYTES, PREFIX));
  if ((n + 1) * PIECE_BYTES === STREAM_BYTES) piece.write('\n\n', PIECE_BYTES - 2);
  return piece;
}

let upstream: RawUpstream;
afterEach(async () => {
  await stopProcesses();
  await upstream.close();
});

/**
 * A service whose answer is the stream that the message names, as fast as it can be written. `held` resolves when nothing
 * more can be written for a while; `sent` has what was written of the numbered one.
 */
async function startService() {
  const sent = { hash: createHash('sha1'), bytes: 0 };
  const held = Promise.withResolvers<void>();
  async function write(socket: Socket, stream: string, bytes: number): Promise<void> {
    for (let n = 0; n * PIECE_BYTES < bytes; n++) {
      const piece = STREAMS[stream]?.(n) as Buffer;
      if (stream === 'numbered') sent.hash.update(piece);
      if (stream === 'numbered') sent.bytes += piece.length;
      if (socket.write(chunk(piece))) continue;
      const timer = setTimeout(held.resolve, HELD_MS);
      await once(socket, 'drain');
      clearTimeout(timer);
    }
    socket.write(LAST_CHUNK);
    held.resolve();
  }
  upstream = await startRawUpstream((socket, { body }) => {
    const { stream } = JSON.parse(String(body)) as { stream?: string };
    socket.write(STREAM_HEAD);
    if (stream === undefined)
      return void socket.write(Buffer.concat([chunk('data: a\n\n'), Buffer.from(LAST_CHUNK)]));
    // It is cut only if the test has failed.
    write(socket, stream, stream === 'numbered' ? FLOOD_BYTES : STREAM_BYTES).catch(() => {});
  });
  return { sent, held: held.promise };
}

/** A relay that has loaded all of its code; `send` resolves with the answer, whose body is not read yet. */
async function startRelay(nodeArgs: readonly string[] = []) {
  const relay = startProcess({
    nodeArgs,
    folder: freshFolder({ 'users.json': usersFile() }),
    environment: { ...inFrontOf(upstream.url), RATE_LIMIT: '1000', HEARTBEAT_MS: '0' },
  });
  const port = await relay.listening();
  const headers = {
    'Content-Type': 'application/json',
    Cookie: await signInAt(port, USER.name, USER.password),
  };
  async function send(body: string): Promise<IncomingMessage> {
    const options = { port, host: '127.0.0.1', path: BOT_PATH, method: 'POST', headers, agent: false };
    const [response] = (await once(request(options).end(body), 'response')) as [IncomingMessage];
    expect(response.statusCode).toBe(200);
    return response;
  }
  for (let count = 0; count < 50; count++) await read(await send(MESSAGE));
  return { pid: relay.pid, send };
}

async function read(response: IncomingMessage) {
  const received = { hash: createHash('sha1'), bytes: 0 };
  for await (const data of response) {
    received.hash.update(data as Buffer);
    received.bytes += (data as Buffer).length;
  }
  return received;
}

/** By how much the resident memory of a fresh relay rises while it carries the stream, in bytes. */
async function riseOf(stream: string): Promise<number> {
  const { pid, send } = await startRelay(EAGER);
  const peak = watchResident(pid);
  const before = peak();
  expect((await read(await send(JSON.stringify({ stream })))).bytes).toBe(STREAM_BYTES);
  const rise = peak() - before;
  await stopProcesses();
  return rise;
}

const median = (values: readonly number[]) => values.toSorted((a, b) => a - b)[values.length >> 1] as number;

testWithProc(
  'an event of 30 MiB costs no more memory than the same bytes in small events',
  async () => {
    await startService();
    const rises: Record<string, number[]> = {};
    for (const stream of Array<string[]>(ROUNDS).fill(SIZED).flat())
      rises[stream] = [...(rises[stream] ?? []), await riseOf(stream)];
    const inMiB = (bytes: number) => (bytes / MB).toFixed(1);
    for (const [stream, all] of Object.entries(rises))
      console.info(`${stream}: ${inMiB(median(all))} MiB of ${all.map(inMiB)}`);
    const [small, ...large] = Object.values(rises).map(median) as [number, ...number[]];
    for (const rise of large) expect(rise).toBeLessThan(small + NOISE);
  },
  120_000,
);

testWithProc(
  'a client that reads nothing of a very long answer costs no memory, and gets everything when it reads',
  async () => {
    const { sent, held } = await startService();
    const { pid, send } = await startRelay();
    const before = residentBytes(pid);
    const response = await send('{"stream":"numbered"}');
    await held;
    expect(residentBytes(pid) - before).toBeLessThan(32 * MB);
    expect(sent.bytes).toBeLessThan(FLOOD_BYTES);

    const received = await read(response);
    expect(received.bytes).toBe(FLOOD_BYTES);
    expect(received.hash.digest('hex')).toBe(sent.hash.digest('hex'));
  },
  210_000,
);
