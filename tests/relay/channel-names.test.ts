import { describe, expect, test } from '@jest/globals';
import fc from 'fast-check';
import {
  channelReplacer,
  replaceIds,
  takeUndecided,
  withClientId,
} from '../../src/relay/upstream/channel-names.ts';
import { inPieces, splits } from '../harness/service/event-streams.ts';

const UPSTREAM = 'ab'.repeat(32);
const NAMES = { client: 'my "one"\n', upstream: UPSTREAM };

/** What comes out of the pieces, and what is held back before the end. */
function replaced(pieces: readonly Buffer[], client = NAMES.client, upstream = UPSTREAM) {
  const replacer = channelReplacer({ client, upstream });
  // It writes into the bytes.
  const out = pieces.map((piece) => Buffer.from(replaceIds(replacer, Buffer.from(piece))));
  const rest = takeUndecided(replacer);
  return { text: Buffer.concat([...out, rest]).toString(), held: rest.length };
}

/** What texts are made of here: the id, what it can be confused with, and what can escape it. */
const PARTS = [
  ...[`"${UPSTREAM}"`, UPSTREAM, `"${UPSTREAM.slice(2)}"`, `"x${UPSTREAM.slice(1)}"`, `"${UPSTREAM}x"`],
  ...[`"${UPSTREAM}`, `${UPSTREAM}"`, '"', '\\', '\\\\', 'ab', 'é, a word, and another', '{"n":1,', '\n'],
  // Another id of the same form, and the characters next to those of an id.
  ...[`"${'0f'.repeat(32)}"`, '/09:', '@AF[', '`afgz'],
];

/** The text with `by` in the place of each id that no backslash escapes, found one character after the other. */
function replacedNaively(text: string, by: string): string {
  const wanted = `"${UPSTREAM}"`;
  let out = '';
  let backslashes = 0;
  for (let at = 0; at < text.length; ) {
    const isFound = backslashes % 2 === 0 && text.startsWith(wanted, at);
    backslashes = text[at] === '\\' ? backslashes + 1 : 0;
    out += isFound ? by : text[at];
    at += isFound ? wanted.length : 1;
  }
  return out;
}

describe('the upstream id of a conversation', () => {
  test('is replaced with its quotes, and nothing else, in any text and wherever that is split', () => {
    const short = fc.array(fc.constantFrom(...PARTS), { maxLength: 12, size: 'max' });
    // Long texts are searched in another way.
    const long = fc.array(fc.constantFrom(...PARTS), { minLength: 60, maxLength: 200, size: 'max' });
    const client = fc.oneof(
      fc.constantFrom(...[1, 36, 63, 64, 65, 300].map((length) => 'c'.repeat(length))),
      fc.constant(NAMES.client),
    );
    fc.assert(
      fc.property(fc.oneof({ arbitrary: short, weight: 3 }, long), splits, client, (parts, lengths, id) => {
        const text = parts.join('');
        const { text: out } = replaced(inPieces(Buffer.from(text), lengths), id);
        expect(out).toBe(replacedNaively(text, JSON.stringify(id)));
      }),
      { numRuns: 2_000, examples: [[PARTS, [1], NAMES.client]] },
    );
  });

  test('is replaced by one that is not longer without a copy', () => {
    for (const client of ['c', 'c'.repeat(64)]) {
      const bytes = Buffer.from(`data: {"customChannelId":"${UPSTREAM}","text":"Hello"}\n\n`);
      const out = replaceIds(channelReplacer({ client, upstream: UPSTREAM }), bytes);
      expect(out.buffer).toBe(bytes.buffer);
      // They end where the bytes end that came.
      expect(out.byteOffset + out.length).toBe(bytes.byteOffset + bytes.length);
      expect(out.length).toBe(bytes.length - 64 + client.length);
    }
  });

  test.each([...'0123456789abcdef'])('is found wherever it stands, of the digit %s too', (digit) => {
    const upstream = digit.repeat(64);
    for (let before = 0; before < 140; before += 1) {
      const said = (id: string) => `${'a'.repeat(before)}"${id}",\n`;
      expect(replaced([Buffer.from(said(upstream))], 'c', upstream).text).toBe(said('c'));
    }
  });

  test.each(['', 'ab-cd', 'AB', 'abg'])('must be hexadecimal, as %j is not', (upstream) => {
    expect(() => channelReplacer({ client: 'c', upstream })).toThrow('The upstream id is not hexadecimal.');
  });

  test.each([
    ['\n', 0],
    ['\r', 0],
    ['\r\n', 0],
    ['', 65],
  ])('is never held back at the end of a line: before %j, %i bytes are', (end, held) => {
    const text = `data: "${UPSTREAM}${end}`;
    expect(replaced([Buffer.from(text)])).toEqual({ text, held });
  });

  test('and a backslash before it counts no more after the end of a stream', () => {
    const replacer = channelReplacer(NAMES);
    replaceIds(replacer, Buffer.from(`\\"${UPSTREAM}`));
    replaceIds(replacer, Buffer.from('\\"'));
    expect([takeUndecided(replacer).toString(), takeUndecided(replacer).length]).toEqual(['"', 0]);
    const next = replaceIds(replacer, Buffer.from(`"${UPSTREAM}"\n`)).toString();
    expect(next).toBe(`${JSON.stringify(NAMES.client)}\n`);
  });

  test('leaves bytes without it as they are, without a copy', () => {
    const bytes = Buffer.from('data: {"text":"Hello"}\n\n');
    expect(replaceIds(channelReplacer(NAMES), bytes).buffer).toBe(bytes.buffer);
  });
});

test('a text is the upstream id only as a whole', () => {
  const mask = (text: string) => text.replace('x', '[secret]');
  const text = withClientId(() => NAMES, mask);
  expect([UPSTREAM, `${UPSTREAM}.`, 'x'].map(text)).toEqual([NAMES.client, `${UPSTREAM}.`, '[secret]']);
  expect(withClientId(() => undefined, mask)(`${UPSTREAM}x`)).toBe(`${UPSTREAM}[secret]`);
});
