import { describe, expect, test } from '@jest/globals';
import { createParser } from 'eventsource-parser';
import fc from 'fast-check';
import { heldBytes } from '../../src/relay/message/held-bytes.ts';
import {
  dropHead,
  isDecided,
  type ResumedHead,
  resumedHead,
  takeHead,
} from '../../src/relay/message/resumed-head.ts';
import { forgetTail, noteSent, resumePointOf, streamCursor } from '../../src/relay/message/stream-cursor.ts';
import { dropRest, push, wholeEvents, wholePiece } from '../../src/relay/message/whole-events.ts';
import { inPieces, splits } from '../harness/service/event-streams.ts';

const KIB = 1024;

interface ServedEvent {
  readonly id?: string;
  readonly data: string;
}

const of = (eventType: string, requestId: string, fact: string) =>
  JSON.stringify({ eventType, requestId, fact });
const INIT = of('asgard.run.init', 'r-1', '');
const OTHER_INIT = of('asgard.run.init', 'r-2', '');

/** How a service writes its events. */
interface Writing {
  readonly lineEnd: string;
  readonly beginning?: string;
  readonly between?: string;
}
const WRITINGS: readonly Writing[] = [
  { lineEnd: '\n' },
  { lineEnd: '\r\n', beginning: '\ufeff: hello\r\nretry: 5\r\n\r\n', between: ': ping\r\n' },
  { lineEnd: '\r' },
];

function written(run: readonly ServedEvent[], { lineEnd, beginning = '', between = '' }: Writing): Buffer {
  const events = run.map(({ id, data }) => {
    const lines = id === undefined ? [`data: ${data}`] : [`id: ${id}`, `data: ${data}`];
    return `${lines.join(lineEnd)}${lineEnd}${lineEnd}${between}`;
  });
  return Buffer.from(beginning + events.join(''));
}

function eventsIn(bytes: Buffer): ServedEvent[] {
  const events: ServedEvent[] = [];
  createParser({
    onEvent: ({ id, data }) => events.push(id === undefined ? { data } : { data, id }),
  }).feed(bytes.toString());
  return events;
}

/** What the relay does with a stream that is resumed: the order of its parts as in the carrying of streams. */
function relay({ lastEventId, room = KIB * KIB }: { lastEventId?: string; room?: number } = {}) {
  const held = heldBytes(room);
  const limits = { maxBytes: 64 * KIB, held, onUnheld: () => undefined };
  const cursor = streamCursor({ lastEventId, held, keepsTail: true });
  let events = wholeEvents(limits);
  let head: ResumedHead | undefined;
  let wasProven = false;
  const down: Buffer[] = [];
  return {
    held,
    cursor,
    down: () => Buffer.concat(down),
    isOpen: () => head !== undefined,
    isProven: () => head?.isProven === true || wasProven,
    /** Takes bytes of the service; returns what is wrong with them. */
    take(chunk: Buffer): string | undefined {
      for (const passed of push(events, chunk)) {
        const verdict = head ? takeHead(head, passed) : { pieces: [passed] };
        if (typeof verdict === 'string') return verdict;
        for (const one of verdict.pieces) {
          noteSent(cursor, one);
          down.push(one.bytes);
        }
        wasProven ||= head?.isProven === true;
        if (head && isDecided(head)) head = undefined;
      }
      return undefined;
    },
    /** The service's stream broke. Returns whether it can be resumed. */
    breaks(): boolean {
      dropRest(events);
      if (head) dropHead(head);
      const point = resumePointOf(cursor);
      events = wholeEvents(limits);
      head = point && resumedHead(point, held);
      return head !== undefined;
    },
    end(): void {
      dropRest(events);
      if (head) dropHead(head);
      forgetTail(cursor);
      expect(held.bytes()).toBe(0);
    },
  };
}

/** The events with which a service goes on after the event at `from`, of which `delivered` arrived. */
const RESUMES: ((run: readonly ServedEvent[], from: number, delivered: number) => readonly ServedEvent[])[] =
  [
    // It goes on live, repeats what came after the id, or repeats that event as well.
    (run, _from, delivered) => run.slice(delivered),
    (run, from) => run.slice(from + 1),
    (run, from) => run.slice(from),
  ];

/** Whether the events that come next equal all that came after the id: nobody can tell them from a repetition. */
function isAmbiguous(run: readonly ServedEvent[], from: number, delivered: number): boolean {
  const tail = run.slice(from + 1, delivered).filter(({ data }) => data !== INIT);
  const next = run.slice(delivered, delivered + tail.length);
  return tail.length > 0 && JSON.stringify(tail) === JSON.stringify(next);
}

/** A run with the same words more than once, and ids on some events, or on all. */
const runs = fc
  .tuple(fc.array(fc.tuple(fc.constantFrom('so', 'ha', '😀'), fc.boolean()), { maxLength: 10 }), fc.boolean())
  .map(([events, haveAllIds]): ServedEvent[] =>
    [
      { data: INIT, isKept: false },
      ...events.map(([text, isKept]) => ({ data: of(isKept ? 'kept' : '', 'r-1', text), isKept })),
      { data: of('asgard.run.done', 'r-1', ''), isKept: false },
    ].map(({ data, isKept }, n) => (haveAllIds || isKept ? { data, id: `n${n}` } : { data })),
  );
/** Where a stream breaks, as a part of its length. */
const places = fc.nat({ max: 10_000 }).map((n) => n / 10_000);

test('a stream that breaks anywhere, and then once more, is the unbroken one for the client', () => {
  const how = fc.record({ writing: fc.constantFrom(...WRITINGS), resumes: fc.constantFrom(...RESUMES) });
  let healed = 0;
  const isHealed = (
    run: readonly ServedEvent[],
    { writing, resumes }: { writing: Writing; resumes: (typeof RESUMES)[number] },
    breaks: readonly number[],
    lengths: readonly number[],
  ) => {
    const one = relay();
    let stream = written(run, writing);
    for (const place of breaks) {
      const end = Math.floor(place * (stream.length + 1));
      for (const piece of inPieces(stream.subarray(0, end), lengths)) {
        // `expect` for each piece would take longer than all the rest.
        const verdict = one.take(piece);
        if (verdict) throw new Error(verdict);
      }
      if (place > 1) break;
      const seen = eventsIn(one.down());
      expect(one.breaks()).toBe(seen.some(({ id }) => id !== undefined));
      const id = resumePointOf(one.cursor)?.lastEventId;
      if (id === undefined) return one.end();
      const from = run.findIndex((event) => event.id === id);
      fc.pre(resumes !== RESUMES[0] || !isAmbiguous(run, from, seen.length));
      stream = written(resumes(run, from, seen.length), writing);
    }
    expect(eventsIn(one.down())).toEqual(run);
    healed += 1;
    one.end();
  };
  const breaks = fc.tuple(places, places).map((twice) => [...twice, 2]);
  fc.assert(fc.property(runs, how, breaks, splits, isHealed), { numRuns: 3_000 });
  expect(healed).toBeGreaterThan(1_000);
});

/** A stream that broke after these bytes and is being resumed. */
function resumed(before: string, options: Parameters<typeof relay>[0] = {}) {
  const one = relay(options);
  one.take(Buffer.from(before));
  expect(one.breaks()).toBe(true);
  const already = one.down().length;
  return {
    ...one,
    /** What is sent of `bytes`, or the verdict. */
    take: (...bytes: readonly string[]) => {
      for (const piece of bytes) {
        const verdict = one.take(Buffer.from(piece));
        if (verdict) return verdict;
      }
      return one.down().subarray(already).toString();
    },
  };
}

const KEPT = 'id: 1\ndata: kept\n\n';
const [A, B, C] = ['data: a\n\n', 'data: b\n\n', 'data: c\n\n'] as const;
const BEFORE = KEPT + A + B;
const LARGE = `data: ${'x'.repeat(64 * KIB)}`;
const delta = `data: ${of('asgard.message.delta', 'r-1', 'x')}\n\n`;
const from40 = { lastEventId: '40' };
const UUID = '01234567-89ab-cdef-0123-456789abcdef';

type Row = [
  title: string,
  before: string,
  pieces: readonly string[],
  sent: string,
  options?: { readonly lastEventId?: string },
];
const ROWS: readonly Row[] = [
  ['takes an event that equals the whole tail for its repetition', `id: 1\n\n${A}`, [A + B], B],
  ['drops the event with the last id if it is the same, byte for byte', KEPT, [KEPT, A], A],
  [
    'sends the event with the last id if it is another',
    KEPT,
    ['id: 1\ndata:kept\n\n'],
    'id: 1\ndata:kept\n\n',
  ],
  ['lets the same event be sent the second time', KEPT, [KEPT + KEPT], KEPT],
  ['lets the same event be sent the second time, after a tail', BEFORE, [KEPT + KEPT], KEPT],
  ['drops the event of the last id only before the events after it', BEFORE, [KEPT + A + B + KEPT], KEPT],
  ['sends the event of the last id behind an event after it', BEFORE, [A + KEPT + B], A + KEPT + B],
  ['drops events only in their order', BEFORE, [B + A], B + A],
  [
    'is not decided by comments and blank lines',
    BEFORE,
    ['data: a\n\n\n\n: ping\n\ndata: b\n\n'],
    ': ping\n',
  ],
  [
    'is not decided by its BOM, nor by blocks without data',
    BEFORE,
    ['\ufeff', ': hello\n', 'retry: 5\n\n', '\n\n', A, ': ping\n', 'event: e\n\n', '\n', B, C],
    `: hello\nretry: 5\n\n: ping\nevent: e\n\n${C}`,
  ],
  [
    'sends an LF that comes late with its comment',
    BEFORE,
    [': p\r', `\n${A}`, 'retry: 5\n\r', '\n'],
    ': p\r\nretry: 5\n\r\n',
  ],
  ['drops the first event of the same run', `data: ${INIT}\n\n${KEPT}`, [`data: ${INIT}\n\n${KEPT}${A}`], A],
  ['tells another run', `data: ${INIT}\n\n${KEPT}`, [`data: ${OTHER_INIT}\n\n${KEPT}`], 'new_run'],
  [
    'tells another run late',
    `data: ${INIT}\n\n${KEPT}`,
    [': p\n\n\nretry: 4\n\n', `data: ${OTHER_INIT}\n\n`],
    'new_run',
  ],
  ['tells another run by any event', `id: 1\n${delta}`, [delta.replace('r-1', 'r-2')], 'new_run'],
  ...[
    '{"eventType": "asgard.run.init", "requestId": "r-2"}',
    '{"eventType":"asgard.run\\u002einit","requestId":"r-2"}',
  ].map(
    (data): Row => [
      `tells another run however it is written: ${data}`,
      `id: 1\ndata: ${INIT}\n\n`,
      [`data: ${data}\n\n`],
      'new_run',
    ],
  ),
  [
    'knows the run of a stream that began in its middle',
    delta,
    [`data: ${OTHER_INIT}\n\n`],
    'new_run',
    from40,
  ],
  ['drops what such a stream repeats', delta, [`data: ${INIT}\n\n${delta}`], '', from40],
  ["does not compare the run's first event", `id: 40\n\ndata: ${INIT}\n\n${A}`, [A + B], B],
  [
    "drops the run's first event before the tail",
    `id: 40\n\ndata: ${INIT}\n\n${A}`,
    [`data: ${INIT}\n\n${A}${B}`],
    B,
  ],
  [
    'tells another run by an event that is too large to hold',
    delta,
    [`data: ${OTHER_INIT.replace('""', `"${'x'.repeat(65 * KIB)}"`)}`],
    'new_run',
    from40,
  ],
  ['is sent with an event that is too large to hold', BEFORE, [A, LARGE, '\n\n', B], `${A}${LARGE}\n\n${B}`],
];

describe('the head of a resumed stream', () => {
  test.each(ROWS)('%s', (_title, before, pieces, sent, options = {}) => {
    const one = resumed(before, options);
    expect(one.take(...pieces)).toBe(sent);
    one.end();
  });

  test('is held while it repeats the tail, and is sent at the first difference', () => {
    const one = resumed(BEFORE);
    expect([one.take(A), one.isOpen()]).toEqual(['', true]);
    expect([one.take(C), one.isOpen()]).toEqual([A + C, false]);
    one.end();
  });

  test('sends comments at once while events are held', () => {
    const one = resumed(BEFORE);
    const before = one.held.bytes();
    one.take(A);
    const holding = one.held.bytes();
    expect(holding).toBeGreaterThan(before);
    expect(one.take(...Array<string>(1000).fill(': ping\n'))).toBe(': ping\n'.repeat(1000));
    expect(one.held.bytes()).toBe(holding);
    one.end();
  });

  test('drops an LF that comes late, with the event that it belongs to', () => {
    const one = resumed('id: 1\r\ndata: kept\r\n\r\ndata: a\r\n\r\n');
    expect([one.take('id: 1\r\ndata: kept\r\n\r', '\n', 'data: a\r\n\r'), one.isOpen()]).toEqual(['', true]);
    expect([one.take('\n'), one.isOpen()]).toEqual(['', false]);
    expect(one.take('data: b\r\n\r', '\n')).toBe('data: b\r\n\r\n');
    one.end();
  });

  test.each([
    ['the event with the last id', KEPT, true],
    ['an event of the tail', delta, true],
    ['another event of the run', delta.replace('"x"', '"b"'), true],
    ['a large event of the run', delta.replace('"x"', `"${'b'.repeat(64 * KIB)}`).trimEnd(), true],
    ['an event that names no run', B, false],
    ['a comment', ': ping\n', false],
  ])('with %s proves that the run goes on, or does not', (_what, bytes, isProof) => {
    const one = resumed(KEPT + delta);
    one.take(bytes);
    expect(one.isProven()).toBe(isProof);
    one.end();
  });

  test('is dropped if there is no room to hold it', () => {
    const kept = `data: ${'x'.repeat(3000)}\n\n`;
    const one = resumed(`id: 1\n\n${kept}${B}`, { room: 2000 });
    expect([one.take(kept), one.down().toString()]).toEqual(['no_room', `id: 1\n\n${kept}${B}`]);
    one.end();
  });

  test('is dropped if half an event finds no room, since nobody knows of which run it is', () => {
    const one = resumed(BEFORE, { room: 1100 });
    expect(one.held.take(100)).toBe(true);
    expect(one.take(`data: ${of('asgard.run', 'r', '')}`)).toBe('no_room');
    one.held.release(100);
    one.end();
  });
});

test('another run is known by a whole UUID, even in the first bytes of an event that is sent in parts', () => {
  const event = (requestId: string) => `data: ${of('kept', requestId, 'x'.repeat(2_000))}`;
  const held = heldBytes(1 << 20);
  const cursor = streamCursor({ lastEventId: undefined, held, keepsTail: true });
  noteSent(cursor, wholePiece(Buffer.from(`id: 1\n${event(UUID)}\n\n`)));
  const point = resumePointOf(cursor);
  const verdictOn = (text: string) =>
    point && takeHead(resumedHead(point, held), { ...wholePiece(Buffer.from(text)), part: 'begins' });
  expect(verdictOn(event(UUID.replace(/f$/, '0')))).toBe('new_run');
  expect(verdictOn(event(UUID))).toMatchObject({ pieces: [{ part: 'begins' }] });
});
