import { describe, expect, test } from '@jest/globals';
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

describe('the place in a log after an event', () => {
  test.each([
    'id: 7\n\n',
    'id:7\n\n',
    'id:7\r\n\r\n',
    'id:7\r\r\n',
    'id:7\n\r\n',
    `${BOM}id:7\n\n`,
    'id: 7\ndata: x\nidx: 1\nid 2\n\n',
    'id: 8\nid: 7\n\n',
    'id: 7\n\nid: 8\n\nid:7\ndata: 7\n\n',
    `id: 7\ndata: ${LONG}\n\n`,
    `: ${LONG}\n\nid:7\n\n`,
  ])('is its end, in %j', (text) => {
    for (const more of ['data: x\n\n', 'id: 9\n\n', '7', `id: 7\n${LONG}`, `${LONG}:7 7 id:7\n\n`])
      expect(upTo(text + more)).toBe(text);
  });

  test.each([
    'id: 7\nid: 8\n\n',
    'id: 7\nid\n\n',
    'id: 7\nid:\r\n\r\n',
    'id:  7\n\n',
    'id: 77\n\n',
    'id: 7 \n\n',
    ' id: 7\n\n',
    'xid: 7\n\n',
    'Id: 7\n\n',
    'id 7\n\n',
    'id; 7\n\n',
    `x${BOM}id:7\n\n`,
    `\n${BOM}id:7\n\n`,
    'data: id: 7\n\n',
    '7\n\n',
    '',
  ])('is not in %j', (text) => {
    for (const more of ['', LONG, `\n\n${LONG}\n\n`]) {
      expect(upTo(text + more)).toBeUndefined();
    }
  });

  test.each(['id: 7\n', 'id: 7', `id: 7\n${LONG}`, `id: 7\n${LONG}\n`])(
    'is not known before it has an end',
    (text) => {
      expect(upTo(text)).toBeUndefined();
    },
  );

  test('is known only when it is known whether an LF belongs to the CR before', () => {
    expect(upTo('id:7\r\r')).toBeUndefined();
    expect(upTo('id:7\r\rdata')).toBe('id:7\r\r');
    expect(upTo('id:7\r\r\ndata')).toBe('id:7\r\r\n');
    expect(upTo('id:7\n\n\r')).toBe('id:7\n\n');
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

test.each([
  ...[
    '\n',
    '\r',
    '\r\n',
    '7',
    'id',
    'id:7',
    'id:7\n',
    'id: 7\n',
    'id:7\nid:8\n\n',
    'id:7\nx\n',
    ' 7',
    ':7',
    'id\n',
  ],
  ...[
    'a'.repeat(99),
    `id:7\n${'x'.repeat(300)}\n`,
    `7${'x'.repeat(300)}`,
    `id:7\n${'x\n'.repeat(3_000)}id\n\n`,
  ],
])('the search takes a few steps for each byte, with a log full of %j', (text) => {
  const length = 16_384;
  const { count, proxy } = counted(Buffer.from(text.repeat(length / text.length), 'latin1'));
  const read = (at: number) => (at < proxy.length ? { bytes: proxy, isInside: false } : undefined);
  const log = { start: 0, read };
  for (const id of ['7', 'a'.repeat(4_000)]) {
    Object.assign(count, { reads: 0, searches: 0 });
    expect(eventPlace(log, id)).toBeUndefined();
    expect(count.reads).toBeLessThan(8 * length);
    expect(count.searches).toBeLessThanOrEqual(length / 256 + 1);
  }
});
