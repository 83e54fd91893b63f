/**
 * What it costs to divide a stream into whole events and to follow it for a resumption, by event and by open stream.
 * Run it with `--expose-gc`. Events come one a chunk, in two chunks each, or as many as a read takes.
 */
import { heldBytes } from '../src/relay/message/held-bytes.ts';
import { forgetTail, noteSent, streamCursor } from '../src/relay/message/stream-cursor.ts';
import { holds, push, wholeEvents } from '../src/relay/message/whole-events.ts';
import { overRounds } from './support/statistics.ts';

const ROUNDS = 9;
const ROUND_MS = 200;
const WARM_UP_MS = 1_000;
const READ_BYTES = 64 * 1024;
const STREAMS = 50_000;

const SHARED = { maxBytes: 64 * 1024, held: heldBytes(64 * 1024 * 1024), onUnheld: () => undefined };
const SIZES = { '100 B': 100, '330 B': 330, '1 MiB': 1024 * 1024 };
const LINE_ENDS = { LF: '\n', CRLF: '\r\n' };
/** The stream's id, if it has one, and whether each event has it. */
const IDS = { 'no id': [false, false], 'after an id': [true, false], 'ids on all': [true, true] } as const;

interface Series {
  /** Bytes before the events. */
  readonly start: Buffer;
  readonly chunks: readonly Buffer[];
  readonly events: number;
}

console.log(`ns per event: median (min–max) of ${ROUNDS} rounds`);
for (const [size, bytes] of Object.entries(SIZES)) {
  for (const [name, lineEnd] of Object.entries(LINE_ENDS)) {
    for (const [ids, [hasId, onAll]] of Object.entries(IDS)) {
      const one = event(bytes, lineEnd, onAll);
      const start = Buffer.from(hasId ? 'id: 1\n\n' : 'data: x\n\n'.repeat(16));
      const half = bytes >> 1;
      const many = Math.floor(READ_BYTES / bytes);
      const read = Buffer.concat(Array.from({ length: many }, () => one));
      const costs = [
        measure({ start, chunks: [one], events: 1 }),
        measure({ start, chunks: [one.subarray(0, half), one.subarray(half)], events: 1 }),
        ...(many > 1 ? [measure({ start, chunks: [read], events: many })] : []),
      ];
      const [whole, halves, reads = '–'] = costs.map((ns) => overRounds(ns, 0));
      console.log(
        `${size} ${name.padEnd(4)} ${ids.padEnd(11)}  one a chunk ${whole}, two chunks ${halves}, full reads ${reads}`,
      );
    }
  }
}
console.log(`${memoryPerStream()} bytes for each open stream`);

/** One event of `bytes` bytes: an id or a name, and a line of data. */
function event(bytes: number, lineEnd: string, hasId: boolean): Buffer {
  const start = `${hasId ? 'id: 4711' : 'event: message'}${lineEnd}data: {"text":"`;
  const end = `"}${lineEnd}${lineEnd}`;
  return Buffer.from(start + 'x'.repeat(bytes - start.length - end.length) + end);
}

/** The time for one event in ns, for each round; rounds last about as long for every series. */
function measure(series: Series): number[] {
  const nsOfOne = follow(series, 200);
  follow(series, Math.ceil((WARM_UP_MS * 1e6) / nsOfOne / series.events));
  const count = Math.ceil((ROUND_MS * 1e6) / follow(series, 200) / series.events);
  return Array.from({ length: ROUNDS }, () => follow(series, count));
}

/** Follows streams in which the chunks come `count` times; each is short enough to be resumed at its end. */
function follow({ start, chunks, events }: Series, count: number): number {
  const timesEach = Math.max(1, Math.floor(1000 / events));
  let ns = 0;
  for (let left = count; left > 0; left -= timesEach)
    ns += followOne(start, chunks, Math.min(left, timesEach));
  return ns / count / events;
}

function followOne(start: Buffer, chunks: readonly Buffer[], times: number): number {
  const stream = wholeEvents(SHARED);
  const cursor = streamCursor({ lastEventId: undefined, held: SHARED.held, keepsTail: true });
  for (const passed of push(stream, start)) noteSent(cursor, passed);
  const startedAt = process.hrtime.bigint();
  for (let n = 0; n < times; n++) {
    for (const chunk of chunks) for (const passed of push(stream, chunk)) noteSent(cursor, passed);
  }
  const ns = Number(process.hrtime.bigint() - startedAt);
  forgetTail(cursor);
  if (holds(stream) !== 'nothing') throw new Error('after whole events nothing may be held');
  return ns;
}

/** The memory of a stream that is silent after one event, in bytes. */
function memoryPerStream(): number {
  const bytesNow = () => {
    if (globalThis.gc === undefined) throw new Error('run this with --expose-gc');
    globalThis.gc();
    const { heapUsed, external } = process.memoryUsage();
    return heapUsed + external;
  };
  const first = event(330, '\n', true);
  const streams: object[] = new Array(STREAMS).fill(first);
  const before = bytesNow();
  for (let n = 0; n < STREAMS; n++) {
    const stream = wholeEvents(SHARED);
    const cursor = streamCursor({ lastEventId: undefined, held: SHARED.held, keepsTail: true });
    for (const passed of push(stream, Buffer.from(first))) noteSent(cursor, passed);
    streams[n] = [stream, cursor];
  }
  const bytes = bytesNow() - before;
  if (streams.includes(first)) throw new Error('all streams must be there');
  return Math.round(bytes / STREAMS);
}
