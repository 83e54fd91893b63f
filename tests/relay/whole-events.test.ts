import { describe, expect, test } from '@jest/globals';
import { createParser } from 'eventsource-parser';
import fc from 'fast-check';
import { blocksOf, nextBlock } from '../../src/relay/message/event-blocks.ts';
import { heldBytes } from '../../src/relay/message/held-bytes.ts';
import {
  forgetTail,
  noteSent,
  resumePointOf,
  runState,
  streamCursor,
} from '../../src/relay/message/stream-cursor.ts';
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

test('an id is latin1 of its bytes, and is cut where no header could carry it, whole or in parts', () => {
  const long = `id: ${'x'.repeat(5000)}\n\n`;
  for (const [length, maxBytes] of [
    [10_000, 64 * KIB],
    [1, 1],
  ] as const) {
    const pieces = inPieces(Buffer.from(`id: é\n\n${long}`), [length]);
    expect(blocksIn(division({ maxBytes }).pushAll(...pieces))).toMatchObject([
      { id: 'Ã©' },
      { id: 'x'.repeat(4097) },
    ]);
  }
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

const MIB = 1024 * 1024;

interface Settings {
  readonly lastEventId?: string;
  readonly keepsTail?: boolean;
  readonly maxBytes?: number;
  readonly room?: number;
}

/** The cursor of a stream of which `chunks` came. */
function cursorAfter(chunks: readonly (string | Buffer)[], settings: Settings = {}) {
  const { lastEventId, keepsTail = true, maxBytes = 64 * 1024, room = 64 * MIB } = settings;
  const held = heldBytes(room);
  const events = wholeEvents({ maxBytes, held, onUnheld: () => undefined });
  const cursor = streamCursor({ lastEventId, held, keepsTail });
  const take = (chunk: string | Buffer) => {
    for (const passed of push(events, Buffer.from(chunk))) noteSent(cursor, passed);
  };
  chunks.forEach(take);
  return { cursor, held, take };
}

const idAfter = (chunks: readonly (string | Buffer)[], settings?: Settings) =>
  resumePointOf(cursorAfter(chunks, settings).cursor)?.lastEventId;
/** From where a plain parser would resume a stream: the last id, if a header can carry it, and the events after it. */
function plainPoint(stream: Buffer) {
  const blocks = naiveItems(stream).items.flatMap(({ fields }) => fields ?? []);
  const last = blocks.findLastIndex(({ id }) => id !== undefined);
  const id = blocks[last]?.id ?? '';
  if (!/^(?![ \t])[\t -~\x80-\xff]+$/.test(id) || /[ \t]$/.test(id)) return undefined;
  return {
    id,
    tail: blocks.slice(last + 1).filter(({ hasData }) => hasData).length,
    retryMs: blocks.findLast(({ retryMs }) => retryMs !== undefined)?.retryMs,
  };
}

test('a stream is resumed from where a plain parser would, with the same hashes however it is split', () => {
  fc.assert(
    fc.property(streams, splits, (stream, lengths) => {
      const point = resumePointOf(cursorAfter(inPieces(stream, lengths)).cursor);
      const { lastEventId: id, tail, retryMs } = point ?? {};
      expect(point && { id, tail: (tail?.length ?? 0) / 16, retryMs }).toEqual(plainPoint(stream));
      expect(point).toEqual(resumePointOf(cursorAfter([stream]).cursor));
    }),
    {
      numRuns: 2_000,
      examples: [
        [Buffer.from('id: 1\r\ndata: a\r\n\r\ndata: b\r\n\r\ndata: c\r\n\r\n'), [1]],
        [Buffer.from('id: é😀\n\nid: a\tb c\n\n'), [1]],
        [Buffer.from(`id: ${'x'.repeat(4096)}\n\n`), [1000]],
        [Buffer.from('id: 1\n\nid\n\n'), [1]],
      ],
    },
  );
});

describe('the id from which a stream is resumed', () => {
  test('is none if no header can carry it', () => {
    for (const id of ['\x01', '\x7f', ' 7', '7 ', '7\t', 'x'.repeat(4097)]) {
      expect(idAfter(['id: 1\n\n', `id: ${id}\n\n`])).toBeUndefined();
      expect(idAfter([], { lastEventId: id })).toBeUndefined();
      expect(idAfter([`id: ${id}\n\n`, 'id: 2\n\n'])).toBe('2');
    }
  });

  test("is the client's own before the stream has one", () => {
    expect(idAfter(['data: a\n\n'], { lastEventId: '40' })).toBe('40');
    expect(idAfter(['id: 41\n\n'], { lastEventId: '40' })).toBe('41');
    expect(idAfter(['id:\n\n'], { lastEventId: '40' })).toBeUndefined();
    expect(idAfter(['data: a\n\n'], { lastEventId: '' })).toBeUndefined();
  });

  test("is not the client's own any more once a run begins in answer to it: that id was ignored", () => {
    const init = event('asgard.run.init');
    expect(idAfter([init], { lastEventId: '40' })).toBeUndefined();
    expect(idAfter([init, 'id: 41\n\n'], { lastEventId: '40' })).toBe('41');
    expect(idAfter([`id: 41\n${init}`], { lastEventId: '40' })).toBe('41');
    expect(idAfter(['id: 41\n\n', init], { lastEventId: '40' })).toBe('41');
  });

  test('is none where streams are not resumed', () => {
    expect(idAfter(['id: 1\n\n'], { keepsTail: false, lastEventId: '40' })).toBeUndefined();
  });
});

describe('what went down after the id', () => {
  test('is known for 1,024 events; with one more the stream is not resumed until the next id', () => {
    const { cursor, held, take } = cursorAfter(['id: 1\n\n', 'data: a\n\n'.repeat(1024)]);
    expect(resumePointOf(cursor)?.tail).toHaveLength(1024 * 16);
    expect(held.bytes()).toBe(1024 * 16);
    take('data: b\n\n');
    expect([resumePointOf(cursor), held.bytes()]).toEqual([undefined, 0]);
    take('id: 2\n\ndata: c\n\n');
    expect(resumePointOf(cursor)).toMatchObject({ lastEventId: '2' });
    forgetTail(cursor);
    forgetTail(cursor);
    take('id: 3\n\ndata: c\n\n');
    expect([resumePointOf(cursor), held.bytes()]).toEqual([undefined, 0]);
  });

  test('is not known if there is no room to remember it', () => {
    const { cursor, held, take } = cursorAfter(['id: 1\n\n'], { room: 100 });
    expect(resumePointOf(cursor)?.lastEventId).toBe('1');
    take('data: a\n\n');
    expect([resumePointOf(cursor), held.bytes()]).toEqual([undefined, 0]);
  });

  test('is not known after an event that was too large to hold, but after its id', () => {
    const { cursor, take } = cursorAfter(['id: 1\n\n', 'data: a'], { maxBytes: 4 });
    expect(resumePointOf(cursor)).toBeUndefined();
    take('\n\n');
    expect(resumePointOf(cursor)).toBeUndefined();
    take('id: 2\nretry: 7\n');
    take('\n');
    expect(resumePointOf(cursor)).toMatchObject({ lastEventId: '2', retryMs: 7, idBlock: undefined });
    take(': large comment');
    take('\n');
    expect(resumePointOf(cursor)).toMatchObject({ lastEventId: '2' });
  });
});

const event = (eventType: string, requestId = 'r-1') =>
  `data: ${JSON.stringify({ eventType, requestId })}\n\n`;
const runAfter = (...chunks: string[]) => runState(cursorAfter(chunks).cursor);

describe('the run', () => {
  test('has begun with its first event, if that is the first of the stream', () => {
    expect(runAfter(`: hello\nretry: 4\n\n${event('asgard.run.init')}`)).toBe('begun');
    expect(runAfter(event('asgard.message.delta'), event('asgard.run.init'))).toBe('unknown');
    expect(runAfter('data: a\n\n', event('asgard.run.init'))).toBe('unknown');
  });

  test.each(['asgard.run.done', 'asgard.run.error'])('has ended with %s, when that went down', (last) => {
    expect(runAfter(event('asgard.run.init'), event('asgard.message.delta'), event(last))).toBe('ended');
    expect(runAfter(event('asgard.run.init'), event(last).slice(0, -1))).toBe('begun');
    expect(runAfter(...'x'.repeat(20), event(last))).toBe('unknown');
    expect(runAfter(event('asgard.message.delta').repeat(20), event(last))).toBe('ended');
    expect(runAfter(event('asgard.run.init'), `id: 4\nevent: e\n${event(last)}`)).toBe('ended');
    const otherOrder = `data: ${JSON.stringify({ requestId: 'r-1', eventType: last })}\n\n`;
    expect(runAfter(event('asgard.run.init'), otherOrder)).toBe('ended');
    for (const space of [' ', ' \t', '\ndata: '])
      expect(runAfter(event('asgard.run.init'), `data: {"eventType":${space}"${last}"}\n\n`)).toBe('ended');
  });

  test('is not looked for in a stream whose first 16 events have no type', () => {
    expect(runAfter('data: x\n\n'.repeat(15), event('asgard.run.done'))).toBe('ended');
    expect(runAfter('data: x\n\n'.repeat(16), event('asgard.run.done'))).toBe('unknown');
  });

  test('has not ended where only the words of an event say so', () => {
    const text =
      'data: {"eventType":"asgard.message.delta","text":"\\"asgard.run.done\\"","of":"asgard.run.done"}\n\n';
    expect(runAfter(event('asgard.run.init'), text)).toBe('begun');
  });

  test('is known from events that found no room, too', () => {
    const { cursor, take } = cursorAfter([], { maxBytes: 1 });
    for (const character of event('asgard.run.init')) take(character);
    expect(runState(cursor)).toBe('begun');
    for (const character of event('asgard.run.done').slice(0, -1)) take(character);
    expect(runState(cursor)).toBe('begun');
    take('\n');
    expect(runState(cursor)).toBe('ended');
  });

  test("has the requestId of the stream's first event that has one", () => {
    const idOf = (...chunks: string[]) => resumePointOf(cursorAfter(['id: 1\n\n', ...chunks]).cursor)?.runId;
    expect(idOf(event('asgard.run.init', 'r-1'), event('x', 'r-2'))).toBe('r-1');
    expect(idOf('data: a\n\n', event('x', 'r-2'), event('x', 'r-3'))).toBe('r-2');
    expect(idOf('data: a\n\n')).toBeUndefined();
  });
});
