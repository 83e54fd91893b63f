import { describe, expect, test } from '@jest/globals';
import { createParser } from 'eventsource-parser';
import fc from 'fast-check';
import { blocksOf, nextBlock } from '../../src/relay/message/event-blocks.ts';
import { heldBytes } from '../../src/relay/message/held-bytes.ts';
import {
  dropRest,
  holds,
  isInsideEvent,
  push,
  type StreamPiece,
  takeRest,
  wholeEvents,
  wholePiece,
} from '../../src/relay/message/whole-events.ts';
import { inPieces, naiveItems, splits, streams } from '../harness/service/event-streams.ts';

const KIB = 1024;

/** A stream's division with what it held and could not hold. */
function division({ maxBytes = 64 * KIB, room = KIB * KIB } = {}) {
  const held = heldBytes(room);
  const unheld: string[] = [];
  const events = wholeEvents({ maxBytes, held, onUnheld: (why) => unheld.push(why) });
  const pushAll = (...pieces: (string | Buffer)[]) =>
    pieces.flatMap((piece) => push(events, Buffer.from(piece as string)));
  return { events, held, unheld, pushAll };
}

const bytesOf = (passed: readonly StreamPiece[]) => Buffer.concat(passed.map(({ bytes }) => bytes));

/** The blocks in what was passed on, with their places in the stream. */
function blocksIn(passed: readonly StreamPiece[]) {
  const found: object[] = [];
  let at = 0;
  let partFrom = 0;
  for (const one of passed) {
    if (one.part === 'begins') partFrom = at;
    if (one.part === 'ends' && one.fields) found.push({ from: partFrom, ...one.fields });
    const blocks = blocksOf(one);
    while (one.part === undefined && nextBlock(blocks)) {
      const { from, hasData, id, retryMs } = blocks;
      found.push({ from: at + from, hasData, id, retryMs });
    }
    at += one.bytes.length;
  }
  return found;
}

/** What may have gone down after each of `all` pieces, by a naive parser of the whole stream so far. */
function naiveDivision(all: readonly Buffer[], maxBytes: number) {
  let total = 0;
  let insideFrom = -1;
  let unheld = 0;
  return all.map((piece, index) => {
    total += piece.length;
    const { bomBytes, items, isHalfBom, inComment } = naiveItems(Buffer.concat(all.slice(0, index + 1)));
    const whole = items.at(-1)?.to ?? bomBytes;
    if (whole > insideFrom) insideFrom = -1;
    if (insideFrom < 0 && total - whole > maxBytes && !isHalfBom) {
      insideFrom = whole;
      unheld++;
    }
    const down = isHalfBom ? 0 : insideFrom < 0 ? whole : total;
    const holding = isHalfBom ? 'event' : down === total ? 'nothing' : inComment ? 'comment' : 'event';
    const blocks = items
      .filter(({ kind }) => kind === 'block')
      .map(({ from, fields }) => ({ from, ...fields }));
    return { down, isInside: insideFrom >= 0, holding, unheld, blocks };
  });
}

/** Pushes all pieces, and compares with the naive division after each. */
function goesDownAsANaiveParserSays(stream: Buffer, lengths: readonly number[], maxBytes: number): void {
  const all = inPieces(stream, lengths);
  const { events, held, unheld } = division({ maxBytes });
  const passed: StreamPiece[] = [];
  const found = all.map((piece) => {
    passed.push(...push(events, piece));
    return {
      down: bytesOf(passed).length,
      isInside: isInsideEvent(events),
      holding: holds(events),
      unheld: unheld.length,
      blocks: blocksIn(passed),
    };
  });
  expect(found).toEqual(naiveDivision(all, maxBytes));
  expect(Buffer.concat([bytesOf(passed), takeRest(events)])).toEqual(stream);
  expect(held.bytes()).toBe(0);
}

/** With all that a parser has to know of: a BOM, each line end, comments in and between events, and odd fields. */
const STREAM = Buffer.from(
  [
    '\ufeff: hello\nretry: 10\n\n\nid: 1\ndata: 😀\n\n',
    'data: a\r\nid: 2\r\n: in\r\ndata: b\r\n\r\n: ping\r\n',
    'event: e\rdata\rid\r\r: ping\rdata: c\r\r\n\r\n',
    'id: 3\n\nid: 4\0\ndata:d\n\n: end\ndata: not whole\nid: 5\n',
  ].join(''),
);

describe('a stream of events', () => {
  test('goes down as a naive parser says, however it is split, and however little is held', () => {
    const held = fc.constantFrom(64 * KIB, 8, 3, 1);
    fc.assert(fc.property(streams, splits, held, goesDownAsANaiveParserSays), {
      numRuns: 1_000,
      examples: [
        [STREAM, [1], 64 * KIB],
        [STREAM, [1], 4],
        // The beginning is held, and several comments follow; an LF that comes late begins a comment.
        [Buffer.from('data: a\n: one\n: two\ndata: b\n\n'), ['data: a\n'.length, 100], 64 * KIB],
        [Buffer.from('data: a\r\n: one\n\n'), ['data: a\r'.length, '\n: one'.length, 100], 64 * KIB],
      ],
    });
  });

  test('goes down as a naive parser says, split at every byte', () => {
    for (let at = 1; at < STREAM.length; at++)
      goesDownAsANaiveParserSays(STREAM, [at, STREAM.length], 64 * KIB);
  });

  test('has an event for each that the parser of a client emits, with the same id', () => {
    const emitted: (string | undefined)[] = [];
    createParser({ onEvent: ({ id }) => emitted.push(id) }).feed(STREAM.toString());
    const found = blocksIn(division().pushAll(STREAM)) as { hasData: boolean; id?: string }[];
    expect(found.filter(({ hasData }) => hasData).map(({ id }) => id)).toEqual(emitted);
    expect(emitted).toEqual(['1', '2', '', undefined, undefined]);
  });
});

test('a block tells where its first line of data begins', () => {
  const blocks = blocksOf(wholePiece(Buffer.from('data: x\n\nid: 1\n: c\ndata: a\ndata: b\n\n')));
  const places: number[] = [];
  while (nextBlock(blocks)) places.push(blocks.dataLine);
  expect(places).toEqual([0, 'data: x\n\nid: 1\n: c\n'.length]);
});

describe('an id', () => {
  test.each([
    ['stands behind the data', 'data: a\nid:7\n\n', '7'],
    ['keeps all spaces but the first', 'id:  7 \n\n', ' 7 '],
    ['is empty without a colon', 'id\n\n', ''],
    ['is the last one of a block', 'id: 7\nid: 8\n\n', '8'],
    ['is not changed by one with NUL', 'id: 7\nid: a\0\n\n', '7'],
    ['does not exist under another name', 'idx: 7\nID: 8\n id: 9\ndata: a\n\n', undefined],
    ['is latin1 of its bytes', 'id: é\n\n', 'Ã©'],
    ['is cut where no header could carry it', `id: ${'x'.repeat(5000)}\n\n`, 'x'.repeat(4097)],
  ])('%s, whole or in parts', (_title, stream, id) => {
    for (const [length, maxBytes] of [
      [10_000, 64 * KIB],
      [1, 64 * KIB],
      [1, 1],
      [3, 2],
    ] as const) {
      const blocks = blocksIn(division({ maxBytes }).pushAll(...inPieces(Buffer.from(stream), [length])));
      expect(blocks).toEqual([expect.objectContaining({ id })]);
    }
  });
});

describe('an event that is not whole', () => {
  test('is held up to the limit, and then goes down as it comes', () => {
    const { events, held, unheld, pushAll } = division({ maxBytes: 1024 });
    const start = 'id: 7\ndata: '.padEnd(1024, 'x');
    expect(pushAll(start)).toEqual([]);
    expect([holds(events), isInsideEvent(events), held.bytes()]).toEqual(['event', false, 1024]);
    const passed = pushAll('y', 'z', '\n\ndata: b\n\n: p');
    expect(passed.map(({ part }) => part)).toEqual(['begins', 'goes on', 'ends', undefined]);
    expect(String(passed[0]?.bytes)).toBe(`${start}y`);
    expect(passed[2]?.fields).toEqual({ hasData: true, id: '7', retryMs: undefined });
    expect([unheld, holds(events), isInsideEvent(events)]).toEqual([['too_large'], 'comment', false]);
    dropRest(events);
    dropRest(events);
    expect([held.bytes(), holds(events)]).toEqual([0, 'nothing']);
  });

  test('goes down whole if its end comes, however large it is', () => {
    const { held, unheld, pushAll } = division({ maxBytes: 1024 });
    const event = Buffer.from(`data: ${'x'.repeat(3000)}\n\n`);
    expect(bytesOf(pushAll(event))).toEqual(event);
    const passed = pushAll(event.subarray(0, 1000), event.subarray(1000));
    expect(passed).toEqual([expect.objectContaining({ bytes: event, part: undefined })]);
    expect([unheld, held.bytes()]).toEqual([[], 0]);
  });

  test('goes down as it comes if all streams together hold too much, and the next is held again', () => {
    const { events, held, unheld, pushAll } = division({ room: 1000 });
    held.take(900);
    expect(pushAll('data: a', '\n\n').map(({ part }) => part)).toEqual(['begins', 'ends']);
    held.release(900);
    expect(pushAll('data: b')).toEqual([]);
    expect(unheld).toEqual(['no_room']);
    expect([String(takeRest(events)), held.bytes()]).toEqual(['data: b', 0]);
  });

  test('of many MiB is never held, but for its first bytes, and keeps nothing else in memory', () => {
    const { events, held, unheld, pushAll } = division();
    pushAll(Buffer.concat([Buffer.alloc(64 * KIB, ':\n'), Buffer.from('data: ')]));
    expect([events.buffer?.buffer.byteLength, held.bytes()]).toEqual([512, 512]);
    const piece = Buffer.alloc(16 * KIB, 'x');
    let [down, most] = [0, 0];
    for (let n = 0; n < 400; n += 1) {
      down += bytesOf(pushAll(piece)).length;
      most = Math.max(most, held.bytes());
    }
    expect([most <= 64 * KIB, held.bytes(), unheld]).toEqual([true, 0, ['too_large']]);
    expect([down, isInsideEvent(events)]).toEqual([400 * piece.length + 6, true]);
    const [end] = pushAll('\nid: 7\n\n');
    expect([end?.part, end?.fields?.id, isInsideEvent(events)]).toEqual(['ends', '7', false]);
  });
});
