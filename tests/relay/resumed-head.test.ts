import { describe, expect, test } from '@jest/globals';
import { createParser } from 'eventsource-parser';
import { heldBytes } from '../../src/relay/message/held-bytes.ts';
import {
  dropHead,
  isDecided,
  type ResumedHead,
  resumedHead,
  takeHead,
} from '../../src/relay/message/resumed-head.ts';
import {
  forgetTail,
  noteSent,
  resumePointOf,
  type StreamCursor,
  streamCursor,
} from '../../src/relay/message/stream-cursor.ts';
import { dropRest, push, type WholeEvents, wholeEvents } from '../../src/relay/message/whole-events.ts';
import { pieces, randomNumbers } from '../harness/service/random-streams.ts';

const KIB = 1024;

interface ServedEvent {
  readonly id?: string;
  readonly data: string;
}

const of = (eventType: string, requestId: string, fact: string) =>
  JSON.stringify({ eventType, requestId, fact });

/** A run in the field's shape: ids on kept messages only, deltas between, with the same words more than once. */
function fieldRun(requestId = 'r-1'): ServedEvent[] {
  const deltas = ['so', 'ha', 'ha', '😀', 'ha'];
  return [
    { data: of('asgard.run.init', requestId, '') },
    { data: of('kept', requestId, '?'), id: '41' },
    ...deltas.map((text) => ({ data: of('', requestId, text) })),
    { data: of('kept', requestId, deltas.join('')), id: '42' },
    ...deltas.slice(0, 3).map((text) => ({ data: of('', requestId, text) })),
    { data: of('asgard.run.done', requestId, '') },
  ];
}

const withIds = (run: readonly ServedEvent[]) => run.map((event, n) => ({ ...event, id: `n${n}` }));

/** How a service writes its events. */
interface Writing {
  readonly lineEnd: string;
  readonly beginning?: string;
  readonly between?: string;
}

function written(run: readonly ServedEvent[], { lineEnd, beginning = '', between = '' }: Writing): Buffer {
  const events = run.map(({ id, data }) => {
    const lines = id === undefined ? [`data: ${data}`] : [`id: ${id}`, `data: ${data}`];
    return `${lines.join(lineEnd)}${lineEnd}${lineEnd}${between}`;
  });
  return Buffer.from(beginning + events.join(''));
}

function eventsIn(bytes: Buffer): ServedEvent[] {
  const events: ServedEvent[] = [];
  const parser = createParser({
    onEvent: ({ id, data }) => events.push(id === undefined ? { data } : { data, id }),
  });
  parser.feed(bytes.toString());
  return events;
}

/** What the relay does with a stream that is resumed: the order of its parts as in the carrying of streams. */
function relay({ lastEventId, room = 64 * KIB * KIB }: { lastEventId?: string; room?: number } = {}) {
  const held = heldBytes(room);
  const limits = { maxBytes: 64 * KIB, held, onUnheld: () => undefined };
  const cursor: StreamCursor = streamCursor({ lastEventId, held, keepsTail: true });
  let events: WholeEvents = wholeEvents(limits);
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
      const resumption = resumePointOf(cursor);
      events = wholeEvents(limits);
      head = resumption && resumedHead(resumption, held);
      return head !== undefined;
    },
    end(): void {
      dropRest(events);
      if (head) dropHead(head);
      forgetTail(cursor);
      // `expect` would take longer than all the rest.
      if (held.bytes() !== 0) throw new Error(`${held.bytes()} bytes are still held`);
    },
  };
}

/** The events with which a service goes on after the client's `lastEventId`, of which `delivered` arrived. */
const RESUMES = {
  'goes on live': (run: readonly ServedEvent[], _from: number, delivered: number) => run.slice(delivered),
  'repeats the tail': (run: readonly ServedEvent[], from: number) => run.slice(from + 1),
  'repeats from the last kept message': (run: readonly ServedEvent[], from: number) => run.slice(from),
};

const WRITINGS: Record<string, Writing> = {
  LF: { lineEnd: '\n' },
  'CRLF, a BOM and comments': {
    lineEnd: '\r\n',
    beginning: '\ufeff: hello\r\nretry: 5\r\n\r\n',
    between: ': ping\r\n',
  },
  CR: { lineEnd: '\r' },
};

/** Breaks the stream at `offset`, the resumed one at a random place, and lets the third one end. */
function breakAt(
  run: readonly ServedEvent[],
  offset: number,
  how: { resumes: keyof typeof RESUMES; writing: Writing },
) {
  const random = randomNumbers(offset);
  const one = relay();
  const send = (bytes: Buffer) => {
    const longest = 1 + Math.floor(random() * 200);
    for (const piece of pieces(bytes, () => 1 + Math.floor(random() * longest))) {
      const verdict = one.take(piece);
      if (verdict) throw new Error(verdict);
    }
  };
  const unbroken = written(run, how.writing);
  send(unbroken.subarray(0, offset));
  let isHealed = true;
  for (const isLast of [false, true]) {
    const seen = eventsIn(one.down());
    isHealed = one.breaks();
    if (isHealed !== seen.some(({ id }) => id !== undefined)) throw new Error(`at ${offset}: ${isHealed}`);
    if (!isHealed) break;
    const id = resumePointOf(one.cursor)?.lastEventId;
    const from = run.findIndex((event) => event.id === id);
    const resumed = written(RESUMES[how.resumes](run, from, seen.length), how.writing);
    send(isLast ? resumed : resumed.subarray(0, Math.floor(random() * resumed.length)));
  }
  const events = eventsIn(one.down());
  // Comparing the texts first, in which `data` stands before `id`, is much faster than `expect` for every offset.
  if (isHealed && JSON.stringify(events) !== JSON.stringify(run)) expect(events).toEqual(run);
  one.end();
  return isHealed;
}

describe.each(Object.entries(WRITINGS))(
  'a stream with %s that breaks at every byte, and then once more,',
  (_name, writing) => {
    const shapes = { 'ids on all events': withIds(fieldRun()), "the field's shape": fieldRun() };
    for (const [shape, run] of Object.entries(shapes)) {
      for (const resumes of Object.keys(RESUMES) as (keyof typeof RESUMES)[]) {
        test(`is the unbroken one for the client: ${shape}, a service that ${resumes}`, () => {
          const { length } = written(run, writing);
          let healed = 0;
          for (let offset = 0; offset <= length; offset++)
            if (breakAt(run, offset, { resumes, writing })) healed++;
          expect(healed / length).toBeGreaterThan(0.7);
        });
      }
    }
  },
);

/** A stream that broke after these bytes and is being resumed. */
function resumed(before: string, options: Parameters<typeof relay>[0] = {}) {
  const one = relay(options);
  one.take(Buffer.from(before));
  expect(one.breaks()).toBe(true);
  const already = one.down().length;
  return {
    ...one,
    /** What is sent of `bytes`, or the verdict. */
    take: (...bytes: string[]) => {
      for (const piece of bytes) {
        const verdict = one.take(Buffer.from(piece));
        if (verdict) return verdict;
      }
      return one.down().subarray(already).toString();
    },
  };
}

const BEFORE = 'id: 1\ndata: kept\n\ndata: a\n\ndata: b\n\n';

describe('the head of a resumed stream', () => {
  test('is held while it repeats the tail, and is sent at the first difference', () => {
    const one = resumed(BEFORE);
    expect(one.take('data: a\n\n')).toBe('');
    expect(one.isOpen()).toBe(true);
    expect(one.take('data: c\n\n')).toBe('data: a\n\ndata: c\n\n');
    expect(one.isOpen()).toBe(false);
    one.end();
  });

  test('takes a new event that equals the whole tail for its repetition: nobody can tell them apart', () => {
    const one = resumed('id: 1\n\ndata: ha\n\n');
    expect(one.take('data: ha\n\ndata: new\n\n')).toBe('data: new\n\n');
    one.end();
  });

  test('drops the event with the last id only if it is the same, byte for byte', () => {
    const same = resumed('id: 1\ndata: kept\n\n');
    expect(same.take('id: 1\ndata: kept\n\n', 'data: new\n\n')).toBe('data: new\n\n');
    const other = resumed('id: 1\ndata: kept\n\n');
    expect(other.take('id: 1\ndata:kept\n\n')).toBe('id: 1\ndata:kept\n\n');
    for (const one of [same, other]) one.end();
  });

  test('lets the same event be sent the second time', () => {
    const one = resumed('id: 1\ndata: kept\n\n');
    const kept = 'id: 1\ndata: kept\n\n';
    expect(one.take(kept + kept)).toBe(kept);
    const withTail = resumed(BEFORE);
    expect(withTail.take(kept + kept)).toBe(kept);
    for (const each of [one, withTail]) each.end();
  });

  test('is not decided by its BOM, by comments, by blocks without data or by blank lines', () => {
    const inOneChunk = resumed(BEFORE);
    expect(inOneChunk.take('data: a\n\n\n\n: ping\n\ndata: b\n\n')).toBe(': ping\n');
    inOneChunk.end();
    const one = resumed(BEFORE);
    const head = [
      '\ufeff',
      ': hello\n',
      'retry: 5\n\n',
      '\n\n',
      'data: a\n\n',
      ': ping\n',
      'event: e\n\n',
      '\n',
    ];
    expect(one.take(...head, 'data: b\n\n', 'data: c\n\n')).toBe(
      ': hello\nretry: 5\n\n: ping\nevent: e\n\ndata: c\n\n',
    );
    one.end();
  });

  test('sends comments at once while events are held', () => {
    const one = resumed(BEFORE);
    const before = one.held.bytes();
    one.take('data: a\n\n');
    const holding = one.held.bytes();
    expect(holding).toBeGreaterThan(before);
    for (let n = 0; n < 1000; n++) one.take(': ping\n');
    expect(one.held.bytes()).toBe(holding);
    expect(one.take()).toBe(': ping\n'.repeat(1000));
    one.end();
  });

  test('drops an LF that comes late, with the event that it belongs to', () => {
    const one = resumed('id: 1\r\ndata: kept\r\n\r\ndata: a\r\n\r\n');
    expect(one.take('id: 1\r\ndata: kept\r\n\r', '\n', 'data: a\r\n\r')).toBe('');
    expect(one.isOpen()).toBe(true);
    expect(one.take('\n')).toBe('');
    expect(one.isOpen()).toBe(false);
    expect(one.take('data: b\r\n\r', '\n')).toBe('data: b\r\n\r\n');
    one.end();
  });

  test('sends an LF that comes late with its comment', () => {
    const one = resumed(BEFORE);
    expect(one.take(': ping\r', '\ndata: a\n\n', 'retry: 5\n\r', '\n')).toBe(': ping\r\nretry: 5\n\r\n');
    one.end();
  });

  test("drops the first event of the same run, and tells another run's", () => {
    const run = fieldRun();
    const bytes = written(run, { lineEnd: '\n' }).toString();
    const cut = bytes.indexOf('data: ', bytes.indexOf('so'));
    const first = bytes.slice(0, bytes.indexOf('\n\n') + 2);
    const rest = bytes.slice(bytes.indexOf('id: 41'));
    const same = resumed(bytes.slice(0, cut));
    expect(same.take(first + rest)).toBe(bytes.slice(cut));
    const other = resumed(bytes.slice(0, cut));
    expect(other.take(written(fieldRun('r-2'), { lineEnd: '\n' }).toString())).toBe('new_run');
    const late = resumed(bytes.slice(0, cut));
    expect(late.take(': ping\n\n\nretry: 4\n\n', first.replace('r-1', 'r-2'))).toBe('new_run');
    for (const one of [same, other, late]) one.end();
  });

  test.each([
    '{"eventType": "asgard.run.init", "requestId": "r-2"}',
    '{"eventType":"asgard.run\\u002einit","requestId":"r-2"}',
  ])("tells another run's first event however it is written: %s", (data) => {
    const one = resumed(`id: 1\ndata: ${of('asgard.run.init', 'r-1', '')}\n\n`);
    expect(one.take(`data: ${data}\n\n`)).toBe('new_run');
    one.end();
  });

  test.each([
    ['the event with the last id', 'id: 1\ndata: kept\n\n', true],
    ['an event of the tail', `data: ${of('d', 'r-1', 'a')}\n\n`, true],
    ['another event of the run', `data: ${of('d', 'r-1', 'b')}\n\n`, true],
    ['a large event of the run', `data: ${of('d', 'r-1', 'b'.repeat(64 * KIB))}`, true],
    ['an event that names no run', 'data: b\n\n', false],
    ['a comment', ': ping\n', false],
  ])('with %s proves that the run goes on, or does not', (_what, bytes, isProof) => {
    const one = resumed(`id: 1\ndata: kept\n\ndata: ${of('d', 'r-1', 'a')}\n\n`);
    one.take(bytes);
    expect(one.isProven()).toBe(isProof);
    one.end();
  });

  test('with any event of another run is of a new run', () => {
    const one = resumed(`id: 1\ndata: ${of('d', 'r-1', 'a')}\n\n`);
    expect(one.take(`data: ${of('d', 'r-2', 'a')}\n\n`)).toBe('new_run');
    one.end();
  });

  test("knows the run by its first event's requestId if the stream did not begin with its first event", () => {
    const delta = `data: ${of('asgard.message.delta', 'r-1', 'x')}\n\n`;
    const one = resumed(delta, { lastEventId: '40' });
    expect(one.take(`data: ${of('asgard.run.init', 'r-2', '')}\n\n`)).toBe('new_run');
    const same = resumed(delta, { lastEventId: '40' });
    expect(same.take(`data: ${of('asgard.run.init', 'r-1', '')}\n\n${delta}`)).toBe('');
    for (const each of [one, same]) each.end();
  });

  test("does not compare the run's first event, which may come again or not", () => {
    const first = `data: ${of('asgard.run.init', 'r-1', '')}\n\n`;
    for (const again of ['', first]) {
      const one = resumed(`id: 40\n\n${first}data: a\n\n`);
      expect(one.take(`${again}data: a\n\ndata: b\n\n`)).toBe('data: b\n\n');
      one.end();
    }
  });

  test("tells another run's first event even if that is too large to hold", () => {
    const one = resumed(`data: ${of('', 'r-1', 'a')}\n\n`, { lastEventId: '40' });
    const large = of('asgard.run.init', 'r-2', 'x'.repeat(65 * KIB));
    expect(one.take(`data: ${large}`)).toBe('new_run');
    one.end();
  });

  test('is dropped if there is no room to hold it', () => {
    const kept = `data: ${'x'.repeat(3000)}\n\n`;
    const one = resumed(`id: 1\n\n${kept}data: b\n\n`, { room: 2000 });
    expect(one.take(kept)).toBe('no_room');
    expect(one.down().toString()).toBe(`id: 1\n\n${kept}data: b\n\n`);
    one.end();
  });

  test('is dropped if half an event finds no room, since nobody knows of which run it is', () => {
    const one = resumed(BEFORE, { room: 1100 });
    expect(one.held.take(100)).toBe(true);
    expect(one.take(`data: ${of('asgard.run', 'r', '')}`)).toBe('no_room');
    one.held.release(100);
    one.end();
  });

  test('is sent with an event that is too large to hold', () => {
    const large = `data: ${'x'.repeat(64 * KIB)}`;
    const one = resumed(BEFORE);
    expect(one.take('data: a\n\n', large)).toBe(`data: a\n\n${large}`);
    expect(one.take('\n\ndata: b\n\n')).toBe(`data: a\n\n${large}\n\ndata: b\n\n`);
    one.end();
  });
});
