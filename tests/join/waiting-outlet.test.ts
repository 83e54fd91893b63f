import { beforeEach, expect, test } from '@jest/globals';
import { Problem } from '../../src/errors.ts';
import { releaseWaiting } from '../../src/join/first-id.ts';
import { answered, batchOf, closeLog, type HeldRun, heldRun, stopStoring } from '../../src/join/held-run.ts';
import { publishedRun } from '../../src/join/published-run.ts';
import { newRun, type Run } from '../../src/join/run.ts';
import { runCodec } from '../../src/join/run-codec.ts';
import { runLog } from '../../src/join/run-log.ts';
import type { Outlet, OutletSource } from '../../src/join/run-outlet.ts';
import { heldBytes } from '../../src/relay/message/held-bytes.ts';
import { runSealer } from '../support/run-sealer.ts';

const MAX_BYTES = 65_536;
const codec = runCodec(runSealer);
const BROKEN = new Problem('upstream_stream_broken', 'x');

/** What a reader has got, and what the one who writes was asked for. */
let got: string[];
let asked: string[] = [];
let held: HeldRun;
let run: Run;
let outlet: Outlet;
let reader: OutletSource | undefined;
/** How far the one who writes has come, as it can be stored. */
let place: string | undefined;
let isInside: boolean;
let onDrained: () => void;

beforeEach(() => begin(undefined));

function begin(from: string | undefined): void {
  [got, place, isInside, onDrained] = [[], from, false, () => {}];
  const budget = heldBytes(1 << 20);
  const own = newRun({
    ...{ onLeft() {}, onChange() {}, graceMs: () => 0, log: runLog(budget), maxBytes: MAX_BYTES },
    ...{ requestId: 'r', progress: { hasLeft: true, mayHaveStarted: true } },
  });
  const name = { conversation: 'c', message: 'm', key: 'k', isKept: true };
  const claim = { id: 'run', token: 't', requestId: 'r' };
  held = heldRun(claim, own, { name, budget, offset: 0, sentAt: performance.now() });
  const flush = {
    ...{
      add() {},
      remove() {},
      find: () => undefined,
      ofMessage: () => [],
      flushSoon() {},
      flushInThisTurn: () => void asked.push('store'),
    },
    ...{ flushNow: async () => true, close: async () => {} },
  };
  ({ run } = publishedRun(held, { flush, maxBytes: MAX_BYTES, isKept: true }));
  outlet = run.stream.outlet;
  outlet.open({
    full: () => void asked.push('full'),
    drained() {
      asked.push('drained');
      onDrained();
    },
    ...{ mayBeat: () => !isInside, closed() {}, resumeState: () => place },
  });
  own.sit({ stop: new AbortController(), holdRun: () => () => {} });
  own.stream.read(readingOutlet(), 0, () => {});
  asked = [];
}

function readingOutlet(): Outlet {
  return {
    open(source) {
      reader = source;
    },
    write: (bytes) => void got.push(bytes.toString()),
    ...{ isFull: () => false, hasBegun: () => got.length > 0 },
    complete: () => void got.push('complete'),
    endEarly: ({ code }, isCut) => void got.push(isCut ? 'cut' : code),
  };
}

/** Writes the text, behind which the stream can be resumed from now on. */
function writeId(text: string): void {
  place = text;
  outlet.write(Buffer.from(text), false);
}

const write = (text: string) => outlet.write(Buffer.from(text), false);
const flight = () => batchOf(held, codec, MAX_BYTES);
const store = (batch = flight()) => answered(held, batch, ['written', 0, 0]);

test.each([
  ['a whole event', 'data: a\n\nid: 1\ndata: b\n\n', 'data: a\n\n'],
  ['lines that end with CR', 'data: a\r\rdata: b\rid: 1\r\r', 'data: a\r\r'],
  ['lines that end with CRLF', ': a\r\n\r\nid\r\n\r\nid: 1\r\n\r\n', ': a\r\n\r\n'],
  ['nothing', 'id: 1\ndata: a\n\n', ''],
  ['a byte order mark', '\ufeffid: 1\ndata: a\n\nid: 2\n\n', ''],
  ['a part of its event, which went down before', 'a\n\n', ''],
])('what stands before the first id goes down at once: %s', (_what, text, before) => {
  writeId(text);
  expect(got.join('')).toBe(before);
  store();
  expect(got.join('')).toBe(text);
});

test('the stream goes on in order when the first id is stored, and later ids do not wait', async () => {
  write('data: a\n\n');
  const earlier = flight();
  writeId('id: 1\n\n');
  write('data: b\n\n');
  expect([outlet.isFull(), asked]).toEqual([true, ['store', 'full']]);
  // A reader with room does not make the service go on.
  reader?.drained();
  // This flight had begun before the id came.
  store(earlier);
  expect(got).toEqual(['data: a\n\n']);
  store();
  expect(got).toEqual(['data: a\n\n', 'id: 1\n\ndata: b\n\n']);
  await null;
  expect([outlet.isFull(), asked]).toEqual([false, ['store', 'full', 'drained']]);
  writeId('id: 2\n\n');
  expect(got.at(-1)).toBe('id: 2\n\n');
});

test('it waits for the place behind it, too, which is stored with the last of many bytes', () => {
  writeId('id: 1\n\n');
  for (let n = 0; n < 4; n++) write(`data: ${'x'.repeat(10_000)}\n\n`);
  while (held.pending.length > 0) {
    expect(got).toEqual([]);
    store();
  }
  store();
  expect(got).toHaveLength(1);
});

test('it does not wait for what comes during the flight', () => {
  writeId('id: 1\n\n');
  const first = flight();
  write('data: a\n\n');
  store(first);
  expect(got).toEqual(['id: 1\n\ndata: a\n\n']);
});

test('it does not wait for a place that there is no more', () => {
  writeId('id: 1\n\n');
  place = undefined;
  write('data: the end\n\n');
  store();
  expect(got).toEqual(['id: 1\n\ndata: the end\n\n']);
});

test.each<[string, () => void, string]>([
  ['complete', () => outlet.complete(), 'complete'],
  ['with a problem', () => outlet.endEarly(BROKEN, false), BROKEN.code],
])('an end that comes meanwhile comes after it: %s', (_what, end, last) => {
  writeId('id: 1\n\n');
  end();
  expect(got).toEqual([]);
  store();
  expect(got).toEqual(['id: 1\n\n', last]);
});

test.each<[string, () => void]>([
  ['its log is closed', () => closeLog(held)],
  ['nothing more is stored of it', () => stopStoring(held)],
  ['the run is over', () => run.over()],
])('it goes down at once if %s, with its end', (_what, work) => {
  writeId('id: 1\n\n');
  outlet.complete();
  work();
  expect(got).toEqual(['id: 1\n\n', 'complete']);
});

test('what comes when more is asked for stands behind what was there before', async () => {
  onDrained = () => write('data: c\n\n');
  writeId('id: 1\n\n');
  closeLog(held);
  write('data: b\n\n');
  await null;
  expect(got).toEqual(['id: 1\n\n', 'data: b\n\n', 'data: c\n\n']);
});

test('nothing more is asked for if another instance has its end', async () => {
  writeId('id: 1\n\n');
  releaseWaiting(held, { withEnd: false });
  await null;
  expect(asked).toEqual(['store', 'full']);
});

test('it goes down without its end if another instance has that', () => {
  writeId('id: 1\n\n');
  outlet.complete();
  releaseWaiting(held, { withEnd: false });
  stopStoring(held);
  expect(got).toEqual(['id: 1\n\n']);
});

test('it does not wait if the log is closed already, or if it was stored by the instance before', () => {
  closeLog(held);
  writeId('id: 1\n\n');
  expect(got).toEqual(['id: 1\n\n']);
  begin('id: 1\n\n');
  writeId('id: 2\n\n');
  expect(got).toEqual(['id: 2\n\n']);
});

test('no heartbeat stands inside an event whose end waits, and the stream counts as begun', () => {
  isInside = true;
  write('id: 1\nda');
  isInside = false;
  writeId('ta: a\n\n');
  expect(reader?.mayBeat()).toBe(false);
  store();
  expect(reader?.mayBeat()).toBe(true);
  begin(undefined);
  writeId('id: 1\n\n');
  expect([got, outlet.hasBegun()]).toEqual([[], true]);
});
