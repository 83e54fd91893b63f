/**
 * What it costs to follow a stream: `push` of `src/relay/stream-position.ts` with one event a chunk, for
 * small, common and very large events. No event has an `id`, so that looking for one never stops.
 */
import { streamPosition } from '../src/relay/message/stream-position.ts';
import { overRounds } from './support/statistics.ts';

const SIZES = { '100 B': 100, '1 KiB': 1024, '1 MiB': 1024 * 1024 };
const LINE_ENDS = { LF: '\n', CRLF: '\r\n' };
const ROUNDS = 9;
const ROUND_MS = 200;

console.log(`Cost of push: median (min–max) of ${ROUNDS} rounds`);
for (const [size, bytes] of Object.entries(SIZES)) {
  for (const [name, lineEnd] of Object.entries(LINE_ENDS)) {
    const nsPerEvent = measure(event(bytes, lineEnd));
    const gigabytesPerSecond = nsPerEvent.map((ns) => bytes / ns);
    console.log(
      `${size} ${name.padEnd(4)}  ${overRounds(nsPerEvent, 0)} ns per event, ${overRounds(gigabytesPerSecond, 2)} GB/s`,
    );
  }
}

/** One event of `bytes` bytes: a name, and a line of data. */
function event(bytes: number, lineEnd: string): Buffer {
  const start = `event: message${lineEnd}data: {"text":"`;
  const end = `"}${lineEnd}${lineEnd}`;
  return Buffer.from(start + 'x'.repeat(bytes - start.length - end.length) + end);
}

/** The time of one `push` in ns, for each round; rounds last about as long for every size. */
function measure(chunk: Buffer): number[] {
  const count = Math.ceil((ROUND_MS * 1e6) / timePushes(chunk, 200));
  timePushes(chunk, count);
  return Array.from({ length: ROUNDS }, () => timePushes(chunk, count));
}

function timePushes(chunk: Buffer, count: number): number {
  const position = streamPosition();
  const startedAt = process.hrtime.bigint();
  for (let n = 0; n < count; n++) position.push(chunk);
  const ns = Number(process.hrtime.bigint() - startedAt);
  if (!position.atEventBoundary()) throw new Error('a whole event must end at an event boundary');
  return ns / count;
}
