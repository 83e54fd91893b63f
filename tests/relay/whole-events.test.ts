import { describe, expect, test } from '@jest/globals';
import { createParser } from 'eventsource-parser';
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
} from '../../src/relay/message/whole-events.ts';
import { naiveItems, pieces, randomPieces } from '../harness/service/random-streams.ts';

const SEEDS = Number(process.env.SEEDS ?? 250);
const KIB = 1024;
const MIB = 1024 * KIB;
const ROOM = 64 * MIB;

/** A stream's division with what it held and could not hold. */
function division({ maxBytes = 64 * KIB, room = ROOM } = {}) {
  const held = heldBytes(room);
  const unheld: string[] = [];
  const events = wholeEvents({ maxBytes, held, onUnheld: (why) => unheld.push(why) });
  return { events, held, unheld };
}

const inWords = (bytes: Buffer) => JSON.stringify(bytes.toString('latin1'));
const bytesOf = (passed: readonly StreamPiece[]) => Buffer.concat(passed.map(({ bytes }) => bytes));

function pushAll(events: ReturnType<typeof wholeEvents>, all: readonly Buffer[]): StreamPiece[] {
  return all.flatMap((piece) => push(events, piece));
}

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
    const soFar = Buffer.concat(all.slice(0, index + 1));
    const { bomBytes, items, isHalfBom, inComment } = naiveItems(soFar);
    const whole = items.at(-1)?.to ?? bomBytes;
    if (whole > insideFrom) insideFrom = -1;
    const pending = insideFrom < 0 ? total - whole : 0;
    if (pending > maxBytes && !isHalfBom) {
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

/** Pushes all pieces and compares with the naive division after each. Returns how many blocks and parts there were. */
function compare(all: readonly Buffer[], maxBytes: number) {
  const { events, held, unheld } = division({ maxBytes });
  const stream = Buffer.concat(all);
  const passed: StreamPiece[] = [];
  const naive = naiveDivision(all, maxBytes);
  all.forEach((piece, index) => {
    passed.push(...push(events, piece));
    const bytes = bytesOf(passed);
    const found = {
      down: bytes.length,
      isInside: isInsideEvent(events),
      holding: holds(events),
      unheld: unheld.length,
      blocks: blocksIn(passed),
    };
    const expected = naive[index];
    // Comparing first is much faster than `expect` for every piece.
    if (
      JSON.stringify(found) !== JSON.stringify(expected) ||
      !stream.subarray(0, bytes.length).equals(bytes)
    ) {
      throw new Error(`${all.slice(0, index + 1).map(inWords)}: ${JSON.stringify({ found, expected })}`);
    }
  });
  const rest = takeRest(events);
  if (!Buffer.concat([bytesOf(passed), rest]).equals(stream) || held.bytes() !== 0)
    throw new Error(`${all.map(inWords)}: ${held.bytes()} bytes are held at the end`);
  return { blocks: naive.at(-1)?.blocks.length ?? 0, unheld: unheld.length };
}

describe('a stream in random pieces', () => {
  test.each([64 * KIB, 8, 3, 1])('goes down as a naive parser says, %i bytes held', (maxBytes) => {
    const sum = { blocks: 0, unheld: 0 };
    for (let seed = 1; seed <= SEEDS; seed++) {
      const { blocks, unheld } = compare(randomPieces(seed), maxBytes);
      sum.blocks += blocks;
      sum.unheld += unheld;
    }
    expect(sum.blocks).toBeGreaterThan(SEEDS);
    expect(sum.unheld).toBeGreaterThan(maxBytes > 8 ? -1 : SEEDS / 2);
  });
});

/** With all that a parser has to know of: a BOM, each line end, comments in and between events, and odd fields. */
const STREAM = Buffer.from(
  [
    '\ufeff: hello\nretry: 10\n\n\nid: 1\ndata: 😀\n\n',
    'data: a\r\nid: 2\r\n: in\r\ndata: b\r\n\r\n: ping\r\n',
    'event: e\rdata\rid\r\r: ping\rdata: c\r\r\n\r\n',
    'id: 3\n\nid: 4\0\ndata:d\n\n: end\ndata: not whole\nid: 5\n',
  ].join(''),
);

describe('a stream with everything in it', () => {
  test('goes down as a naive parser says, split at every byte and byte by byte', () => {
    for (let at = 1; at < STREAM.length; at++)
      compare([STREAM.subarray(0, at), STREAM.subarray(at)], 64 * KIB);
    expect(
      compare(
        pieces(STREAM, () => 1),
        64 * KIB,
      ).blocks,
    ).toBe(7);
    expect(
      compare(
        pieces(STREAM, () => 1),
        4,
      ).unheld,
    ).toBeGreaterThan(8);
  });

  test('has an event for each that the parser of a client emits, with the same id', () => {
    const { events } = division();
    const emitted: (string | undefined)[] = [];
    createParser({ onEvent: ({ id }) => emitted.push(id) }).feed(STREAM.toString());
    const found = blocksIn(push(events, STREAM)) as { hasData: boolean; id?: string }[];
    expect(found.filter(({ hasData }) => hasData).map(({ id }) => id)).toEqual(emitted);
    expect(emitted).toEqual(['1', '2', '', undefined, undefined]);
  });
});

describe('an id', () => {
  test.each([
    ['stands before the data', 'id: 7\ndata: a\n\n', '7'],
    ['stands behind the data', 'data: a\nid:7\n\n', '7'],
    ['keeps all spaces but the first', 'id:  7 \n\n', ' 7 '],
    ['is empty after a colon', 'id:\n\n', ''],
    ['is empty without a colon', 'id\n\n', ''],
    ['is the last one of a block', 'id: 7\nid: 8\n\n', '8'],
    ['is not changed by one with NUL', 'id: 7\nid: a\0\n\n', '7'],
    ['does not exist if it has NUL', 'id: \0\n\n', undefined],
    ['does not exist in a comment', ':id: 7\ndata: a\n\n', undefined],
    ['does not exist under another name', 'idx: 7\nID: 8\n id: 9\ndata: a\n\n', undefined],
    ['is latin1 of its bytes', 'id: é\n\n', 'Ã©'],
    ['is cut where no header could carry it', `id: ${'x'.repeat(5000)}\n\n`, 'x'.repeat(4097)],
  ])('%s, whole or in parts', (_title, stream, id) => {
    const bytes = Buffer.from(stream);
    for (const [all, maxBytes] of [
      [[bytes], 64 * KIB],
      [pieces(bytes, () => 1), 64 * KIB],
      [pieces(bytes, () => 1), 1],
      [pieces(bytes, () => 3), 2],
    ] as const) {
      const blocks = blocksIn(pushAll(division({ maxBytes }).events, all));
      expect(blocks).toEqual([expect.objectContaining({ id })]);
    }
  });
});

describe('an event that is not whole', () => {
  test('is held up to the limit, and then goes down as it comes', () => {
    const { events, held, unheld } = division({ maxBytes: 1024 });
    const start = Buffer.from('id: 7\ndata: '.padEnd(1024, 'x'));
    expect(push(events, start)).toEqual([]);
    expect([holds(events), isInsideEvent(events), held.bytes()]).toEqual(['event', false, 1024]);
    const passed = pushAll(events, [Buffer.from('y'), Buffer.from('z'), Buffer.from('\n\ndata: b\n\n: p')]);
    expect(passed.map(({ part }) => part)).toEqual(['begins', 'goes on', 'ends', undefined]);
    expect(passed[0]?.bytes).toEqual(Buffer.concat([start, Buffer.from('y')]));
    expect(passed[2]?.fields).toEqual({ hasData: true, id: '7', retryMs: undefined });
    expect([unheld, holds(events), isInsideEvent(events)]).toEqual([['too_large'], 'comment', false]);
    dropRest(events);
    dropRest(events);
    expect([held.bytes(), holds(events)]).toEqual([0, 'nothing']);
  });

  test('goes down whole if its end comes, however large it is', () => {
    const { events, held, unheld } = division({ maxBytes: 1024 });
    const event = Buffer.from(`data: ${'x'.repeat(3000)}\n\n`);
    expect(bytesOf(push(events, event))).toEqual(event);
    const passed = pushAll(events, [event.subarray(0, 1000), event.subarray(1000)]);
    expect(passed).toEqual([expect.objectContaining({ bytes: event, part: undefined })]);
    expect([unheld, held.bytes()]).toEqual([[], 0]);
  });

  test('goes down as it comes if all streams together hold too much, and the next is held again', () => {
    const { events, held, unheld } = division({ room: 1000 });
    held.take(900);
    const passed = pushAll(events, [Buffer.from('data: a'), Buffer.from('\n\n')]);
    expect(passed.map(({ part }) => part)).toEqual(['begins', 'ends']);
    held.release(900);
    expect(pushAll(events, [Buffer.from('data: b')])).toEqual([]);
    expect(unheld).toEqual(['no_room']);
    expect(takeRest(events).toString()).toBe('data: b');
    expect(held.bytes()).toBe(0);
  });

  test('of 30 MiB is never held, but for its first bytes', () => {
    const { events, held, unheld } = division();
    const chunk = Buffer.alloc(16 * KIB, 'x');
    let [down, most] = [0, 0];
    push(events, Buffer.from('data: '));
    for (let sent = 0; sent < 30 * MIB; sent += chunk.length) {
      down += bytesOf(push(events, chunk)).length;
      most = Math.max(most, held.bytes());
    }
    expect([most <= 64 * KIB, held.bytes(), unheld]).toEqual([true, 0, ['too_large']]);
    expect([down, isInsideEvent(events)]).toEqual([30 * MIB + 6, true]);
    const [end] = push(events, Buffer.from('\nid: 7\n\n'));
    expect([end?.part, end?.fields?.id, isInsideEvent(events)]).toEqual(['ends', '7', false]);
  });

  test('keeps nothing but its own bytes in memory', () => {
    const { events, held } = division();
    push(events, Buffer.concat([Buffer.alloc(64 * KIB, ':\n'), Buffer.from('data: a')]));
    expect([events.buffer?.buffer.byteLength, held.bytes()]).toEqual([512, 512]);
  });
});
