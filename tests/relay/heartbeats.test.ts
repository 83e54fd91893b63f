import type { Socket } from 'node:net';
import { afterAll, beforeAll, expect, jest, test } from '@jest/globals';
import { createHeartbeats } from '../../src/relay/message/heartbeats.ts';
import { dechunk, type RawClient } from '../harness/clients/raw-client.ts';
import { testSideBySide } from '../harness/clock/side-by-side.ts';
import { until } from '../harness/clock/until.ts';
import { type RelayAndUpstream, startRelayAndUpstream } from '../harness/relay/relay-and-upstream.ts';
import { chunk, LAST_CHUNK, STREAM_HEAD } from '../harness/service/raw-upstream.ts';

const PERIOD_MS = 200;
const BEAT = ':\n';
const BOM = '\xef\xbb\xbf';

let pair: RelayAndUpstream;
const socketOf = new Map<number, Socket>();
beforeAll(async () => {
  pair = await startPair(PERIOD_MS);
});
afterAll(() => pair.close());

/** What a message asks of the upstream: the text of `send` after the headers, or, if it is undefined, nothing yet. */
interface Asked {
  readonly n: number;
  readonly send?: string | undefined;
}

/** Starts an upstream that leaves its streams open, and notes the socket of each message. */
function startPair(heartbeatMs: number): Promise<RelayAndUpstream> {
  return startRelayAndUpstream(
    (socket, { body }) => {
      const { n, send } = JSON.parse(String(body)) as Asked;
      socketOf.set(n, socket);
      if (send === undefined) return;
      socket.write(STREAM_HEAD);
      if (send) socket.write(piece(send));
    },
    { HEARTBEAT_MS: String(heartbeatMs) },
  );
}

interface Asking {
  readonly client: RawClient;
  /** The upstream's socket. */
  readonly socket: Socket;
}

let count = 0;
async function ask(send: string | undefined, from = pair): Promise<Asking> {
  const n = count++;
  const client = from.ask({ body: JSON.stringify({ n, send } satisfies Asked) });
  await until(() => socketOf.has(n));
  return { client, socket: socketOf.get(n) as Socket };
}

/** A chunk of the bytes of `text` in latin1. */
const piece = (text: string) => chunk(Buffer.from(text, 'latin1'));
const body = (client: RawClient) => dechunk(client.text()).body;
const beats = (client: RawClient) => body(client).split(BEAT).length - 1;

/** Opens a stream that has sent `send`, and then `held` (latin1). */
async function stream(send: string, held = '', from = pair): Promise<Asking> {
  const asking = await ask(send + held, from);
  await asking.client.waitFor(send || '\r\n\r\n');
  return asking;
}

/** Waits until a new stream had `count` heartbeats: an older stream could have had as many. */
async function periods(count: number) {
  const { client } = await stream('');
  await until(() => beats(client) >= count);
}

type Case = [title: string, run: () => Promise<void>];
/** What is sent before a heartbeat, what behind it, and what the client gets besides heartbeats. */
type BomRow = [title: string, before: string, behind: readonly string[], expected: string];

const BOM_ROWS: readonly BomRow[] = [
  ['a BOM at the start passes', `${BOM}data: a\n\n`, [], `${BOM}data: a\n\n`],
  [
    'a BOM that is not at the start passes',
    'data: a\n\n',
    [`${BOM}data: b\n\n`],
    `data: a\n\n${BOM}data: b\n\n`,
  ],
  ['a BOM that is the whole stream after a heartbeat is removed', '', [BOM], ''],
  [
    'a BOM at the start of the stream, after a heartbeat, is removed',
    '',
    [`${BOM}data: a\n\n`],
    'data: a\n\n',
  ],
  [
    'a BOM after a heartbeat that is split after every byte is removed',
    '',
    [...BOM, 'd', 'ata: a\n\n'],
    'data: a\n\n',
  ],
  ['bytes that begin like a BOM pass if they are split', '', ['\xef', '\xbc\x9a\n\n'], '\xef\xbc\x9a\n\n'],
  [
    'bytes that begin like a BOM pass if they are split late',
    '',
    ['\xef\xbb', 'data\n\n'],
    '\xef\xbbdata\n\n',
  ],
  ['bytes that begin like a BOM pass at the end of the stream', '', ['\xef\xbb'], '\xef\xbb'],
];

const CASES: Record<string, () => Promise<void>> = {
  async 'a stream has one heartbeat per period of silence'() {
    const { client, socket } = await stream('data: a\n\n');
    const from = performance.now();
    await until(() => beats(client) >= 5);
    // A tick of an eighth may have begun before, and a timer may be a little early.
    expect(performance.now() - from).toBeGreaterThan(4.5 * PERIOD_MS);
    socket.write(Buffer.concat([piece('data: b\n\n'), Buffer.from(LAST_CHUNK)]));
    await client.waitFor(LAST_CHUNK);
    expect(body(client)).toMatch(/^data: a\n\n(:\n){5,}data: b\n\n$/);
  },
  async 'a stream has none while data arrives more often than that'() {
    const { client, socket } = await stream('data: a\n\n');
    const timer = setInterval(() => socket.write(piece('data: b\n\n')), PERIOD_MS / 5);
    await periods(3);
    clearInterval(timer);
    expect(body(client)).toMatch(/^data: a\n\n(data: b\n\n){3,}$/);
  },
  async 'a stream has one before the first byte if that is late'() {
    const { client } = await stream('');
    await client.waitFor(BEAT);
    expect(body(client)).toBe(BEAT);
  },
  async 'a stream has heartbeats after an event, be it of CRLF lines, and after a comment'() {
    const all = ['data: a\n\n', 'data: a\r\n\r\n', ': x\n'];
    const streams = await Promise.all(all.map((sent) => stream(sent)));
    await until(() => streams.every(({ client }) => beats(client) >= 2));
    for (const [n, { client }] of streams.entries())
      expect(body(client).startsWith(all[n] + BEAT + BEAT)).toBe(true);
  },
  async 'a stream has none where it would change what a parser reads'() {
    // An LF may follow the CR, and a large event is passed on before it is whole.
    const open = ['data: a\r\r', 'data: a\r\n\r', `data: ${'a'.repeat(70_000)}`];
    const streams = await Promise.all(open.map((sent) => stream(sent)));
    await periods(3);
    expect(streams.map(({ client }) => body(client))).toEqual(open);
  },
  async 'a stream has heartbeats where the relay holds the rest of what has arrived'() {
    const half = ['data: a\n', 'data: he', 'data: a\r', ': x', 'i', '\xef\xbb'];
    const streams = await Promise.all(half.map((sent) => stream('data: w\n\n', sent)));
    await until(() => streams.every(({ client }) => beats(client) >= 2));
    for (const { client } of streams) expect(body(client)).toMatch(/^data: w\n\n(:\n)+$/);
  },
  ...Object.fromEntries(
    BOM_ROWS.map(
      ([title, before, pieces, expected]): Case => [
        title,
        async () => {
          const { client, socket } = await stream(before);
          await until(() => beats(client) > 0);
          for (const [n, text] of pieces.entries()) {
            const isLast = n === pieces.length - 1;
            socket.write(isLast ? Buffer.concat([piece(text), Buffer.from(LAST_CHUNK)]) : piece(text));
            if (text.endsWith('\n\n')) await client.waitFor(text.slice(-4));
          }
          if (pieces.length === 0) socket.write(LAST_CHUNK);
          await client.waitFor(LAST_CHUNK);
          expect(body(client).replaceAll(BEAT, '')).toBe(expected);
        },
      ],
    ),
  ),
  async 'nothing is sent to the client before the headers of the upstream'() {
    const { client, socket } = await ask(undefined);
    await periods(3);
    expect(client.text()).toBe('');
    socket.write(STREAM_HEAD);
    await client.waitFor(BEAT);
  },
  async 'HEARTBEAT_MS=0 turns heartbeats off'() {
    const without = await startPair(0);
    const { client } = await stream('data: a\n\n', '', without);
    await periods(3);
    expect(body(client)).toBe('data: a\n\n');
    await without.close();
  },
};

testSideBySide(Object.entries(CASES));

test('a stream has no heartbeats while the client does not read', async () => {
  const blank = Buffer.alloc(16 << 20, `${'x'.repeat(1022)}\n\n`);
  const { client, socket } = await stream('');
  client.socket.pause().removeAllListeners('data');
  // There is an event boundary in every kilobyte: only the slow client prevents heartbeats.
  socket.write(Buffer.concat([chunk(blank), Buffer.from(LAST_CHUNK)]));
  await periods(5);
  expect(socket.writableLength).toBeGreaterThan(0);
  let colons = 0;
  const complete = new Promise<void>((resolve) => {
    client.socket.on('data', (data) => {
      for (let at = data.indexOf(':'); at >= 0; at = data.indexOf(':', at + 1)) colons++;
      if (data.includes(LAST_CHUNK)) resolve();
    });
  });
  client.socket.resume();
  await complete;
  // One heartbeat is possible between the client's next read and the upstream's next byte.
  expect(colons).toBeLessThan(2);
});

test('the heartbeats of all streams share one timer, which ends at the first tick without a stream', () => {
  jest.useFakeTimers();
  const { watch, unwatch } = createHeartbeats(PERIOD_MS);
  const streams = Array.from({ length: 100 }, () => ({ ticks: 0 }));
  let count = 0;
  for (const silence of streams) watch(silence, () => count++);
  expect(jest.getTimerCount()).toBe(1);
  jest.advanceTimersByTime(5.5 * PERIOD_MS);
  expect(count).toBe(5 * streams.length);
  for (const silence of streams) unwatch(silence);
  expect(jest.getTimerCount()).toBe(1);
  jest.advanceTimersByTime(PERIOD_MS / 8);
  expect([count, jest.getTimerCount()]).toEqual([5 * streams.length, 0]);
  watch({ ticks: 0 }, () => count++);
  createHeartbeats(0).watch({ ticks: 0 }, () => {});
  expect(jest.getTimerCount()).toBe(1);
  jest.useRealTimers();
});
