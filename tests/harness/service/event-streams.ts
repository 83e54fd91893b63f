import fc from 'fast-check';

/** The parts of random streams, as latin1: each character is one byte. */
const TOKENS = [
  ...['\n', '\r', '\r\n', '\n\n', '\r\r', '\r\n\r\n', ':', ' ', 'i', 'd', 'x', '\0'],
  ...[
    'id',
    'id:',
    'id: 7',
    'id\n',
    'id:\n',
    'id: 8\0\n',
    'ide:',
    'Id:',
    ' id:',
    ':id:',
    'idx',
    '\nid: 9',
    '\rid:a',
  ],
  ...['data: x', 'data', 'data:', 'dat', 'event: e', 'retry: 5', 'retry:x', 'retry', ': ping', ':\n'],
  ...['data: x\n\n', 'id: 3\ndata: y\n\n', 'data: z\r\n\r\n', 'data: z\r\r'],
  ...['\xef\xbb\xbf', '\xef', '\xbb', '\xbf', '\xef\xbb', Buffer.from('😀').toString('latin1')],
];
const BEGINNINGS = ['', '', '\xef\xbb\xbf', '\xef\xbb\xbfid', '\xef\xbb', '\xef', '\xef\xbb\xbf\xef\xbb\xbf'];

/** Streams of what matters to a parser of events. */
export const streams: fc.Arbitrary<Buffer> = fc
  .tuple(fc.constantFrom(...BEGINNINGS), fc.array(fc.constantFrom(...TOKENS), { maxLength: 40, size: 'max' }))
  .map(([beginning, tokens]) => Buffer.from(beginning + tokens.join(''), 'latin1'));

/** The lengths of pieces, some of them empty, for `inPieces`. */
export const splits: fc.Arbitrary<readonly number[]> = fc
  .tuple(fc.array(fc.nat({ max: 12 }), { maxLength: 8 }), fc.integer({ min: 1, max: 200 }))
  .map(([lengths, last]) => [...lengths, last]);

/** `bytes` in pieces of these lengths, again and again. */
export function inPieces(bytes: Buffer, lengths: readonly number[]): Buffer[] {
  const pieces: Buffer[] = [];
  for (let at = 0, n = 0; at < bytes.length; n += 1) {
    const length = lengths[n % lengths.length] ?? 1;
    pieces.push(bytes.subarray(at, at + length));
    at += length;
  }
  return pieces;
}

/** A block or a comment line of a stream, or a blank line between two blocks, as a naive parser sees it. */
export interface NaiveItem {
  readonly kind: 'block' | 'comment' | 'blank';
  from: number;
  to: number;
  /** `hasData`, `id` and `retryMs` of a block. */
  readonly fields?: { hasData: boolean; id: string | undefined; retryMs: number | undefined };
}

const BOM = '\xef\xbb\xbf';

/** All that is complete in `bytes`, byte by byte, and whether the last line that began is a comment outside of blocks. */
export function naiveItems(bytes: Buffer) {
  const text = bytes.toString('latin1');
  const bomBytes = text.startsWith(BOM) ? 3 : 0;
  const items: NaiveItem[] = [];
  let lines: string[] = [];
  let blockFrom = bomBytes;
  let lineFrom = bomBytes;
  for (let at = bomBytes; at < text.length; at++) {
    if (text[at] !== '\n' && text[at] !== '\r') continue;
    const line = text.slice(lineFrom, at);
    if (text[at] === '\r' && text[at + 1] === '\n') at++;
    const to = at + 1;
    if (lines.length === 0) blockFrom = lineFrom;
    if (line === '' && lines.length > 0) {
      items.push({ kind: 'block', from: blockFrom, to, fields: naiveFields(lines) });
      lines = [];
    } else if (line === '') items.push({ kind: 'blank', from: lineFrom, to });
    else if (lines.length === 0 && line.startsWith(':')) items.push({ kind: 'comment', from: lineFrom, to });
    else lines.push(line);
    lineFrom = to;
  }
  const isHalfBom = text.length > 0 && text.length < 3 && BOM.startsWith(text);
  const inComment = lines.length === 0 && text[lineFrom] === ':';
  return { bomBytes, items, isHalfBom, inComment };
}

function naiveFields(lines: readonly string[]) {
  const fields: { hasData: boolean; id: string | undefined; retryMs: number | undefined } = {
    hasData: false,
    id: undefined,
    retryMs: undefined,
  };
  for (const line of lines) {
    const [, name, value = ''] = /^([^:]*)(?::[ ]?([\s\S]*))?$/.exec(line) ?? [];
    if (name === 'data') fields.hasData = true;
    if (name === 'id' && !value.includes('\0')) fields.id = value;
    if (name === 'retry' && /^\d+$/.test(value)) fields.retryMs = Number(value);
  }
  return fields;
}
