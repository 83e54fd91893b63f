import { afterEach, expect, test } from '@jest/globals';
import { type HeldRun, heldRun, note } from '../../src/join/held-run.ts';
import { newRun } from '../../src/join/run.ts';
import type { Batch, BatchAnswer } from '../../src/join/run-calls.ts';
import { type RunSealer, runCodec } from '../../src/join/run-codec.ts';
import { type RunFlush, runFlush } from '../../src/join/run-flush.ts';
import { runLog } from '../../src/join/run-log.ts';
import { heldBytes } from '../../src/relay/message/held-bytes.ts';
import { countAwakeMs } from '../support/awake.ts';
import { until } from '../support/until.ts';

const MAX_BYTES = 1 << 20;
const PART = Buffer.alloc(60_000, 'x');

let flights: (readonly Batch[])[] = [];
let fails = false;
/** The part of Redis whose flushes fail. */
let failing = '';
let status: BatchAnswer[0] = 'written';
let given: [HeldRun, outcome: string][] = [];
let flush: RunFlush;
const budget = heldBytes(4_000_000);
const SEALER: RunSealer = {
  sealBytes: (bytes) => bytes.toString(),
  openBytes: (text) => Buffer.from(text),
};
const codec = runCodec(Object.assign(() => SEALER, { forget() {} }));

const partOf = (id: string) => (id.endsWith('0') ? 'other' : 'one');

function start(): void {
  flights = [];
  fails = false;
  failing = '';
  status = 'written';
  given = [];
  flush = runFlush({
    calls: {
      partOf,
      async flush(batches) {
        flights.push(batches);
        if (fails || batches.some(({ id }) => partOf(id) === failing)) throw new Error('no answer');
        return batches.map(() => [status, 0, 0] as const);
      },
    },
    ...{ codec, maxBytes: MAX_BYTES },
    onAnswer() {},
    onHandedOver: (...call) => void given.push(call),
  });
}
afterEach(() => flush.close());

function hold(n: number): HeldRun {
  const log = runLog(budget);
  const progress = { hasLeft: true, mayHaveStarted: true };
  const options = { log, maxBytes: MAX_BYTES, graceMs: () => 0, requestId: 'r', progress };
  const run = newRun({ ...options, onLeft() {}, onChange() {} });
  const name = { conversation: 'c', message: `m${n}`, key: `k${n}`, isKept: true };
  const claim = { id: `r${n}`, token: 't', requestId: 'r' };
  const held = heldRun(claim, run, { name, offset: 0, sentAt: performance.now(), budget });
  flush.add(held);
  return held;
}

const bytesOf = (batches: readonly Batch[]) => batches.reduce((all, { data }) => all + data.length, 0);

test('no call of the script has more than about a MiB', async () => {
  start();
  for (let n = 0; n < 40; n++) note(hold(n), { bytes: PART, isInside: false }, MAX_BYTES);
  expect(await flush.flushNow()).toBe(true);
  expect(flights.map(bytesOf).reduce((all, bytes) => all + bytes, 0)).toBe(40 * PART.length);
  for (const flight of flights) expect(bytesOf(flight)).toBeLessThanOrEqual(1 << 20);
  expect(flights.length).toBeLessThanOrEqual(4);
});

test('a part of Redis that fails does not keep the runs of another one from being stored', async () => {
  start();
  const [stored, waiting] = [hold(1), hold(0)];
  for (const held of [stored, waiting]) note(held, { bytes: PART, isInside: false }, MAX_BYTES);
  failing = 'other';
  expect(await flush.flushNow()).toBe(false);
  failing = '';
  expect(await flush.flushNow()).toBe(true);
  const lengths = flights.flat().map(({ id, length }) => [id, length]);
  const [first, again] = [
    ['r1', PART.length],
    ['r0', PART.length],
  ];
  expect(lengths.slice(0, 3)).toEqual([first, again, again]);
  expect(lengths.slice(3)).toEqual([]);
});

test('what waits to be stored counts as memory of runs, until it is stored', async () => {
  start();
  const before = budget.bytes();
  const held = hold(0);
  const own = () => budget.bytes() - before;
  const withoutBytes = own();
  for (let n = 0; n < 3; n++) note(held, { bytes: PART, isInside: false }, MAX_BYTES);
  expect(own() - withoutBytes).toBe(3 * PART.length);
  await flush.flushNow();
  // One batch has two of them.
  expect(own() - withoutBytes).toBe(PART.length);
  flush.remove(held);
  expect(own()).toBe(withoutBytes);
});

test('without memory for what waits, nothing more of the stream is stored', async () => {
  start();
  const all = [hold(0), hold(1), hold(2), hold(3)];
  const before = budget.bytes();
  for (let n = 0; n < 17; n++) {
    for (const held of all) note(held, { bytes: PART, isInside: false }, MAX_BYTES);
  }
  expect(budget.bytes()).toBeLessThanOrEqual(budget.maxBytes);
  const closed = all.filter(({ log }) => log === 'closing');
  expect(closed.length).toBeGreaterThan(0);
  expect(closed.length).toBeLessThan(4);
  for (const { pending } of closed) expect(pending).toEqual([]);
  await flush.flushNow();
  expect(flights.flat().filter(({ offset }) => offset < 0)).toHaveLength(closed.length);
  for (const held of all) flush.remove(held);
  expect(budget.bytes()).toBe(before);
});

test('an answer that comes at once is stored by one batch with its end, without the message', async () => {
  start();
  const held = hold(0);
  held.hold = () => 'the message';
  note(held, { bytes: PART, isInside: false }, MAX_BYTES);
  flush.flushInThisTurn(held);
  const progress = { hasLeft: true, mayHaveStarted: true };
  const how = { problem: undefined, isCut: false, at: PART.length, isDropped: false, progress, headers: [] };
  held.end = { how, state: 'kept' };
  flush.flushSoon();
  await until(() => flights.length > 0);
  expect(flights.flat().map(({ length, state, hold }) => [length, state, hold])).toEqual([
    [PART.length, 'kept', ''],
  ]);
});

test('a run that was removed during a flight is not stored again if that fails', async () => {
  start();
  const held = hold(0);
  note(held, { bytes: PART, isInside: false }, MAX_BYTES);
  const progress = { hasLeft: true, mayHaveStarted: true };
  const how = { problem: undefined, isCut: false, at: PART.length, isDropped: false, progress, headers: [] };
  held.end = { how, state: 'kept' };
  fails = true;
  const flight = flush.flushNow();
  flush.remove(held);
  expect(await flight).toBe(false);
  await flush.flushNow();
  expect(flights).toHaveLength(1);
});

test('the readers of a given run are sent on, also if another instance has taken it already', async () => {
  start();
  const [held, taken] = [hold(0), hold(1)];
  held.isHandedOver = true;
  await flush.flushNow();
  expect(given).toEqual([[held, 'handed_over']]);
  taken.isHandedOver = true;
  status = 'lost';
  await flush.flushNow();
  expect(given.slice(1)).toEqual([[taken, 'lost']]);
  expect(flush.find(taken.name)).toBeUndefined();
});

test('what nobody waits for is stored with the next extension of the lease', async () => {
  start();
  const [held, other] = [hold(0), hold(1)];
  note(held, { bytes: Buffer.from('x'), isInside: false }, MAX_BYTES);
  // The timer that looks at all stores only what somebody waits for.
  note(other, { bytes: Buffer.from('y'), isInside: false }, MAX_BYTES);
  other.isFollowed = true;
  flush.flushSoon();
  await until(() => flights.length > 0);
  expect(flights.flat().map(({ id }) => id)).toEqual(['r1']);
  held.confirmedAt -= 1_500;
  await until(() => flights.length > 1);
  expect(flights.flat().slice(1)).toMatchObject([{ id: 'r0', length: 1 }]);
});

test('of a stream that can be resumed, what was too much for one batch follows at once, with its place', async () => {
  start();
  const held = hold(0);
  held.isResumable = true;
  const unused = { mayBeat: () => true, full() {}, drained() {}, closed() {} };
  held.source = { ...unused, resumeState: () => 'the place' };
  note(held, { bytes: Buffer.alloc(70_000, 'x'), isInside: false }, MAX_BYTES);
  note(held, { bytes: Buffer.from('data: small\n\n'), isInside: false }, MAX_BYTES);
  const awakeMs = countAwakeMs();
  flush.flushSoon();
  await until(() => flights.length > 1);
  // Long before the lease is extended.
  expect(awakeMs()).toBeLessThan(500);
  expect(flights.flat().map(({ length, cursor }) => [length, cursor !== ''])).toEqual([
    [70_000, false],
    [13, true],
  ]);
});

test('what is much is stored soon, though nobody waits for it', async () => {
  start();
  const [held, other] = [hold(0), hold(1)];
  note(held, { bytes: PART, isInside: false }, MAX_BYTES);
  note(other, { bytes: Buffer.from('y'), isInside: false }, MAX_BYTES);
  flush.flushSoon();
  await until(() => flights.length > 0);
  expect(flights.flat().map(({ id }) => id)).toEqual(['r0']);
});

test('what comes during a flight waits for its own time, what was too much for one does not', async () => {
  start();
  const small = { bytes: Buffer.from('x'), isInside: false };
  const held = hold(0);
  note(held, small, MAX_BYTES);
  const flight = flush.flushNow();
  note(held, small, MAX_BYTES);
  await flight;
  // A timer that is set later and waits longer fires later.
  await new Promise((resolve) => setTimeout(resolve, 10));
  expect(flights.flat().map(({ length }) => length)).toEqual([1]);
  flush.flushSoon();
  await until(() => flights.length === 2);
  for (let n = 0; n < 3; n++) note(held, { bytes: PART, isInside: false }, MAX_BYTES);
  await flush.flushNow();
  await until(() => flights.length === 4);
  expect(flights.flat().map(({ offset }) => offset)).toEqual([0, 1, 2, 2 + 2 * PART.length]);
});

test('what waits for its flight goes down as soon as the one before it has failed', async () => {
  start();
  note(hold(1), { bytes: PART, isInside: false }, MAX_BYTES);
  fails = true;
  const flight = flush.flushNow();
  const held = hold(2);
  held.waiting = { bytes: [PART], isInside: false, end: undefined };
  note(held, { bytes: PART, isInside: false }, MAX_BYTES);
  flush.flushInThisTurn(held);
  await flight;
  expect([flights.length, held.run.log.end]).toEqual([1, PART.length]);
  expect(held.log).toBe('open');
});

test('a run that is stored at once takes no other with it, which still has its own time', async () => {
  start();
  const [first, second] = [hold(1), hold(2)];
  for (const held of [first, second]) note(held, { bytes: PART, isInside: false }, MAX_BYTES);
  flush.flushSoon();
  flush.flushInThisTurn(first);
  await until(() => flights.length === 2);
  expect(flights.map((batches) => batches.map(({ id }) => id))).toEqual([[first.id], [second.id]]);
});
