import { describe, expect, test } from '@jest/globals';
import fc from 'fast-check';
import { eventPlace } from '../../src/runs/event-place.ts';
import { RunLog } from '../../src/runs/run-log.ts';

function logOf(...pieces: readonly string[]) {
  const log = new RunLog({ take: () => true, release() {} });
  for (const piece of pieces) log.push(Buffer.from(piece, 'latin1'), false);
  return log;
}

/** What stands in the log before the place. */
function upTo(text: string, id = '7'): string | undefined {
  const place = eventPlace(logOf(text), id);
  return place === undefined ? undefined : text.slice(0, place);
}

const BOM = '\xef\xbb\xbf';
const LONG = 'x'.repeat(1_000);

/** What a plain parser finds (WHATWG HTML §9.2.6), which reads each line from the first one on. */
function plainPlace(text: string, id: string): string | undefined {
  let place: number | undefined;
  let last: string | undefined;
  for (const { 0: whole, 1: line = '', 2: ending, index } of text.matchAll(/([^\r\n]*)(\r\n|\r|\n)/g)) {
    const end = index + whole.length;
    const field = index === 0 && line.startsWith(BOM) ? line.slice(BOM.length) : line;
    if (field === 'id') last = '';
    else if (field.startsWith('id:')) last = field.slice(field[3] === ' ' ? 4 : 3);
    if (field !== '') continue;
    // An LF that belongs to this CR may follow.
    const isKnown = ending !== '\r' || end < text.length;
    if (last === id && isKnown) place = end;
    last = undefined;
  }
  return place === undefined ? undefined : text.slice(0, place);
}

/** A piece of a stream. Most of them are nearly the id that is looked for. */
const piece = fc.oneof(
  { arbitrary: fc.constantFrom('\n', '\r', '\r\n', '\n\n'), weight: 4 },
  { arbitrary: fc.constantFrom('id:7\n', 'id: 7\n\n', 'id:8\n', 'id\n'), weight: 3 },
  fc.constantFrom('id', 'id:', 'id: ', 'Id: ', 'id; ', 'x', ' ', '7', '77', 'data: id: 7', BOM, LONG),
);

describe('the place in a log after an event', () => {
  test('is that which a plain parser finds, whatever the log holds', () => {
    const stream = fc.array(piece, { maxLength: 16, size: 'max' }).map((pieces) => pieces.join(''));
    const property = fc.property(stream, fc.constantFrom('7', ' 7', '77'), (text, id) => {
      expect(upTo(text, id)).toBe(plainPlace(text, id));
    });
    fc.assert(property, { numRuns: 3_000 });
  });

  test('may need an id with spaces, or one that is longer than what is searched for', () => {
    const id = 'a'.repeat(40);
    expect(upTo(`id: ${id}\n\nid: ${id}a\n\nid: ${id.slice(1)}b\n\n`, id)).toBe(`id: ${id}\n\n`);
    expect(upTo('id:  7\n\nid: 7\n\n', ' 7')).toBe('id:  7\n\n');
    expect(upTo('id: 7\n\n', ' 7')).toBeUndefined();
  });

  test('is found across pages, and in a log that has lost its beginning', () => {
    const log = logOf(`data: ${'x'.repeat(1_015)}\n\n`, 'i', 'd:7', '\n', LONG, '\n\n', LONG);
    expect(eventPlace(log, '7')).toBe(1_030 + LONG.length);
    log.trim(0, 1_024);
    expect([log.start, eventPlace(log, '7')]).toEqual([1_024, undefined]);
    // Its first line is not whole, so that it counts for nothing.
    const cut = logOf('x'.repeat(1_024), 'id:7\n\nid:8\n\n');
    cut.trim(0, 1_024);
    expect([cut.start, eventPlace(cut, '7'), eventPlace(cut, '8')]).toEqual([1_024, undefined, 1_036]);
  });
});

/** Some bytes, and how often one of them is read, or Node.js searches them. */
function counted(bytes: Buffer) {
  const count = { reads: 0, searches: 0 };
  const proxy: Buffer = new Proxy(bytes, {
    get(target, key) {
      if (key === 'subarray') return () => proxy;
      if (typeof key === 'string' && /^-?\d+$/.test(key)) count.reads += 1;
      const value: unknown = Reflect.get(target, key, target);
      if (typeof value !== 'function') return value;
      count.searches += 1;
      return value.bind(target);
    },
  });
  return { count, proxy };
}

const FILLINGS = [
  ...['\n', '\r', '\r\n', '7', 'id', 'id:7', 'id:7\n', 'id: 7\n', 'id:7\nx\n', ' 7', ':7', 'id\n'],
  ...['id:7\nid:8\n\n', 'a'.repeat(99), `id:7\n${'x'.repeat(300)}\n`, `7${'x'.repeat(300)}`],
  `id:7\n${'x\n'.repeat(3_000)}id\n\n`,
];

test('the search takes a few steps for each byte, whatever the log is full of', () => {
  const length = 16_384;
  for (const text of FILLINGS) {
    const { count, proxy } = counted(Buffer.from(text.repeat(length / text.length), 'latin1'));
    const read = (at: number) => (at < proxy.length ? { bytes: proxy, isInside: false } : undefined);
    for (const id of ['7', 'a'.repeat(4_000)]) {
      Object.assign(count, { reads: 0, searches: 0 });
      expect(eventPlace({ start: 0, read }, id)).toBeUndefined();
      expect(count.reads).toBeLessThan(8 * length);
      expect(count.searches).toBeLessThanOrEqual(length / 256 + 1);
    }
  }
});
