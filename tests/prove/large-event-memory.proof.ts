import { once } from 'node:events';
import { type IncomingMessage, request } from 'node:http';
import type { Socket } from 'node:net';
import { afterEach, expect } from '@jest/globals';
import { cheapHash } from '../harness/relay/cheap-hash.ts';
import { freshFolder, inFrontOf, signInAt, startProcess, stopProcesses } from '../harness/relay/process.ts';
import { BOT_PATH, MESSAGE, USER } from '../harness/relay/relay.ts';
import { testWithProc, watchResident } from '../harness/relay/resident-memory.ts';
import {
  chunk,
  LAST_CHUNK,
  type RawUpstream,
  STREAM_HEAD,
  startRawUpstream,
} from '../harness/service/raw-upstream.ts';

const MB = 2 ** 20;
const STREAM_BYTES = 30 * MB;
const PIECE_BYTES = 16 * 1024;
const ROUNDS = Number(process.env.ROUNDS ?? 3);
/** By how much the peaks of two equal measurements may differ, in bytes. */
const NOISE = 8 * MB;
/**
 * A large event gives the collector less to do: with its own times, garbage waits longer, up to a bound. It collects so
 * often here that the peaks are of memory that is in use.
 */
const EAGER = ['--max-semi-space-size=1'];
const PREFIX = 'data: ';

/** How the same number of bytes is divided into events: the pieces in which the service writes them. */
const STREAMS: Record<string, (n: number) => Buffer> = {
  'small events': () => Buffer.alloc(PIECE_BYTES, `${PREFIX}${'x'.repeat(56)}\n\n`),
  'one event of one line': (n) => lineAt(n, (piece) => piece.fill('x', n === 0 ? PREFIX.length : 0)),
  'one event of many lines': (n) => lineAt(n, (piece) => piece.fill(`${PREFIX}${'x'.repeat(57)}\n`)),
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

/** A service whose answer is the stream that the message names. */
async function startService(): Promise<void> {
  const write = async (socket: Socket, pieceAt: (n: number) => Buffer) => {
    for (let n = 0; n * PIECE_BYTES < STREAM_BYTES; n++)
      if (!socket.write(chunk(pieceAt(n)))) await once(socket, 'drain');
    socket.write(LAST_CHUNK);
  };
  upstream = await startRawUpstream((socket, { body }) => {
    socket.write(STREAM_HEAD);
    const { stream } = JSON.parse(String(body)) as { stream?: string };
    const pieceAt = STREAMS[stream ?? ''];
    if (pieceAt) void write(socket, pieceAt);
    else socket.write(Buffer.concat([chunk('data: a\n\n'), Buffer.from(LAST_CHUNK)]));
  });
}

async function startRelay() {
  const users = JSON.stringify({ users: [{ name: USER.name, hash: cheapHash(USER.password) }] });
  const relay = startProcess({
    nodeArgs: EAGER,
    folder: freshFolder({ 'users.json': users }),
    environment: { ...inFrontOf(upstream.url), RATE_LIMIT: '1000', HEARTBEAT_MS: '0' },
  });
  const port = await relay.listening();
  const cookie = await signInAt(port, USER.name, USER.password);
  /** Sends a message and reads its answer; resolves with its length. */
  const carry = async (body: string) => {
    const headers = { 'Content-Type': 'application/json', Cookie: cookie };
    const options = { port, host: '127.0.0.1', path: BOT_PATH, method: 'POST', headers, agent: false };
    const [response] = (await once(request(options).end(body), 'response')) as [IncomingMessage];
    let bytes = 0;
    for await (const data of response) bytes += (data as Buffer).length;
    return bytes;
  };
  return { pid: relay.pid, carry };
}

/** The highest resident memory of a fresh relay while it carries the stream, in bytes. */
async function peakOf(stream: string): Promise<number> {
  const { pid, carry } = await startRelay();
  // Code that is loaded for the first messages must not count.
  for (let count = 0; count < 50; count++) await carry(MESSAGE);
  const peak = watchResident(pid);
  const before = peak();
  expect(await carry(JSON.stringify({ stream }))).toBe(STREAM_BYTES);
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
    for (const stream of Array<string[]>(ROUNDS).fill(Object.keys(STREAMS)).flat())
      rises[stream] = [...(rises[stream] ?? []), await peakOf(stream)];
    const inMiB = (bytes: number) => (bytes / MB).toFixed(1);
    for (const [stream, all] of Object.entries(rises))
      console.info(`${stream}: ${inMiB(median(all))} MiB of ${all.map(inMiB)}`);
    const [small, ...large] = Object.values(rises).map(median) as [number, ...number[]];
    for (const rise of large) expect(rise).toBeLessThan(small + NOISE);
  },
  120_000,
);
