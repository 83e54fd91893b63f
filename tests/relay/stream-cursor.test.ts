import { describe, expect, test } from '@jest/globals';
import fc from 'fast-check';
import { heldBytes } from '../../src/relay/message/held-bytes.ts';
import {
  forgetTail,
  noteSent,
  resumePointOf,
  runState,
  streamCursor,
} from '../../src/relay/message/stream-cursor.ts';
import { push, wholeEvents } from '../../src/relay/message/whole-events.ts';
import { inPieces, naiveItems, splits, streams } from '../harness/service/event-streams.ts';

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
const tailAfter = (chunks: readonly string[], settings?: Settings) => {
  const tail = resumePointOf(cursorAfter(chunks, settings).cursor)?.tail;
  return tail && tail.length / 16;
};

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
  test.each([
    ['a control character', '\x01'],
    ['DEL', '\x7f'],
    ['a space at the start', ' 7'],
    ['a space at the end', '7 '],
    ['a tab at the end', '7\t'],
    ['4,097 bytes', 'x'.repeat(4097)],
  ])('is none if no header can carry it: %s', (_title, id) => {
    expect(idAfter(['id: 1\n\n', `id: ${id}\n\n`])).toBeUndefined();
    expect(idAfter([], { lastEventId: id })).toBeUndefined();
    expect(idAfter([`id: ${id}\n\n`, 'id: 2\n\n'])).toBe('2');
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
  test('is every event with data, and begins anew with each id', () => {
    expect(tailAfter(['data: a\n\nid: 1\n\ndata: b\n\n', 'retry: 5\n\n: c\n', 'data: c\n\n'])).toBe(2);
    expect(tailAfter(['id: 1\n\ndata: b\n\nid: 2\ndata: c\n\n'])).toBe(0);
    expect(tailAfter(['data: a\n\ndata: b\n\n'], { lastEventId: '40' })).toBe(2);
  });

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
