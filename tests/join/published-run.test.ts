import { expect, test } from '@jest/globals';
import { answered, batchOf, heldRun } from '../../src/join/held-run.ts';
import { publishedRun } from '../../src/join/published-run.ts';
import { newRun } from '../../src/join/run.ts';
import { runCodec } from '../../src/join/run-codec.ts';
import type { RunFlush } from '../../src/join/run-flush.ts';
import { runLog } from '../../src/join/run-log.ts';
import { heldBytes } from '../../src/relay/message/held-bytes.ts';
import { runSealer } from '../support/run-sealer.ts';
import { until } from '../support/until.ts';

const MAX_BYTES = 65_536;

/** A run that this instance carries, whose batches go nowhere. */
function carried(own: Partial<RunFlush> = {}) {
  const progress = { hasLeft: true, mayHaveStarted: true };
  const unused = { onLeft() {}, onChange() {}, graceMs: () => 0 };
  const budget = heldBytes(1 << 20);
  const run = newRun({ ...unused, log: runLog(budget), maxBytes: MAX_BYTES, requestId: 'r', progress });
  const claim = { id: 'run', token: 't', requestId: 'r' };
  const name = { conversation: 'c', message: 'm', key: 'k', isKept: true };
  const held = heldRun(claim, run, { name, budget, offset: 0, sentAt: Number.POSITIVE_INFINITY });
  const flush: RunFlush = {
    ...{ add() {}, remove() {}, find: () => undefined, ofMessage: () => [], flushSoon() {} },
    ...{ flushInThisTurn() {}, flushNow: async () => true, close: async () => {} },
    ...own,
  };
  const published = publishedRun(held, { flush, maxBytes: MAX_BYTES, isKept: true }).run;
  return { run, held, published };
}

test('a place to resume from is stored only with all that was written before it', async () => {
  const codec = runCodec(runSealer);
  const asked = Promise.withResolvers<boolean>();
  const { run, held, published } = carried({ flushNow: () => asked.promise });
  const { outlet } = published.stream;
  // How far the one who writes has come, stored or not.
  let events = 0;
  outlet.open({ full() {}, drained() {}, mayBeat: () => true, closed() {}, resumeState: () => events });
  const write = (text: string) => {
    events += 1;
    outlet.write(Buffer.from(text), false);
  };
  write('a');
  // The process was stopped, and its lease may be lost.
  held.confirmedAt = Number.NEGATIVE_INFINITY;
  write('b');
  write('c');
  const first = batchOf(held, codec, MAX_BYTES);
  expect([first.length, first.cursor]).toEqual([1, '']);
  answered(held, first, ['written', 0, 0]);
  asked.resolve(true);
  await until(() => run.log.end === 3);
  const second = batchOf(held, codec, MAX_BYTES);
  expect(second.length).toBe(2);
  expect(codec.open(second.cursor, 'run', 'cursor')).toEqual({ at: 3, cursor: 3 });
});

test('what comes is stored soon only if somebody waits for it, or if it is much', () => {
  let calls = 0;
  const { held, published } = carried({ flushSoon: () => void calls++ });
  const { outlet } = published.stream;
  const callsFor = (work: () => void) => {
    const before = calls;
    work();
    return calls - before;
  };
  outlet.open({ full() {}, drained() {}, mayBeat: () => true, closed() {} });
  // Its beginning is stored soon.
  expect(callsFor(() => published.begin(new Map()))).toBe(1);
  held.head = undefined;
  expect(callsFor(() => outlet.write(Buffer.from('a'), false))).toBe(0);
  held.isFollowed = true;
  expect(callsFor(() => outlet.write(Buffer.from('b'), false))).toBe(1);
  held.isFollowed = false;
  expect(callsFor(() => outlet.write(Buffer.from('c'), false))).toBe(0);
  expect(callsFor(() => outlet.write(Buffer.alloc(20_000), false))).toBe(1);
  // Another instance could go on with it.
  held.isResumable = true;
  held.pendingBytes = 0;
  expect(callsFor(() => outlet.write(Buffer.from('d'), false))).toBe(1);
  // Its end is always stored soon.
  expect(callsFor(() => published.over())).toBe(1);
});

test('the message is stored with the first place to go on from, and not before', async () => {
  const codec = runCodec(runSealer);
  const { held, published } = carried();
  let place: string | undefined;
  published.keep(() => 'the message');
  published.begin(new Map());
  published.stream.outlet.open({
    ...{ full() {}, drained() {}, mayBeat: () => true, closed() {}, resumeState: () => place },
  });
  const holds: unknown[] = [];
  const store = () => {
    const batch = batchOf(held, codec, MAX_BYTES);
    answered(held, batch, ['written', 0, 0]);
    holds.push(batch.hold && codec.open(batch.hold, 'run', 'hold'));
  };
  for (const next of [undefined, 'a', 'b']) {
    place = next;
    published.stream.outlet.write(Buffer.from('x'), false);
    store();
  }
  expect(holds).toEqual(['', 'the message', '']);
});

test('the message is not held any more once its stream is over, stored or not', () => {
  const { held, published } = carried();
  published.keep(() => 'the message');
  published.begin(new Map());
  expect(held.hold).toBeDefined();
  published.over();
  expect(held.end).toBeDefined();
  expect(held.hold).toBeUndefined();
});
