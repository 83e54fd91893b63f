import { describe, expect, test } from '@jest/globals';
import {
  channelReplacer,
  replaceIds,
  takeUndecided,
  withClientId,
} from '../../src/relay/upstream/channel-names.ts';
import { randomNumbers } from '../harness/service/random-streams.ts';

const UPSTREAM = 'ab'.repeat(32);
const NAMES = { client: 'my "one"\n', upstream: UPSTREAM };
const CLIENT = JSON.stringify(NAMES.client);

/** What comes out if the text is pushed in pieces of `size` bytes, and what is held back before the end. */
function pushed(text: string, size: number): { text: string; held: number } {
  const replacer = channelReplacer(NAMES);
  const bytes = Buffer.from(text);
  const out: Buffer[] = [];
  for (let at = 0; at < bytes.length; at += size)
    out.push(replaceIds(replacer, bytes.subarray(at, at + size)));
  const rest = takeUndecided(replacer);
  return { text: Buffer.concat([...out, rest]).toString(), held: rest.length };
}

/** What texts are made of here: the id, what it can be confused with, and what can escape it. */
const PARTS = [
  ...[`"${UPSTREAM}"`, `"${UPSTREAM}"`, UPSTREAM, `"${UPSTREAM.slice(2)}"`, `"x${UPSTREAM.slice(1)}"`],
  ...[`"${UPSTREAM}`, `${UPSTREAM}"`, '"', '\\', '\\\\', 'ab', 'é, a word, and another', '{"n":1,', '\n'],
  // Another id of the same form, and the characters next to those of an id.
  ...[`"${'0f'.repeat(32)}"`, '/09:', '@AF[', '`afgz'],
] as const;

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
  const text = [
    `data: {"customChannelId":"${UPSTREAM}","a":"${UPSTREAM}"}\n\n`,
    `data: ""${UPSTREAM}""${UPSTREAM}"\n\n`,
    `data: "${UPSTREAM}x" "x${UPSTREAM}" "${'ab'.repeat(31)}" ${UPSTREAM} \\"${UPSTREAM}\\" é"\n\n`,
    `data: {"a":"see \\"${UPSTREAM}","b":"\\\\","c":"${UPSTREAM}","d":"\\\\\\"${UPSTREAM}","\\\\"${UPSTREAM}"}\n\n`,
  ].join('');
  const expected = [
    `data: {"customChannelId":${CLIENT},"a":${CLIENT}}\n\n`,
    `data: "${CLIENT}${CLIENT}\n\n`,
    `data: "${UPSTREAM}x" "x${UPSTREAM}" "${'ab'.repeat(31)}" ${UPSTREAM} \\"${UPSTREAM}\\" é"\n\n`,
    `data: {"a":"see \\"${UPSTREAM}","b":"\\\\","c":${CLIENT},"d":"\\\\\\"${UPSTREAM}","\\\\${CLIENT}}\n\n`,
  ].join('');

  test.each(Array.from({ length: 140 }, (_, i) => i + 1))(
    'is replaced with its quotes, and nothing else, in pieces of %i bytes',
    (size) => expect(pushed(text, size).text).toBe(expected),
  );

  test('is replaced wherever the text is divided', () => {
    for (let at = 0; at <= text.length; at += 1) {
      const replacer = channelReplacer(NAMES);
      const bytes = Buffer.from(text);
      const out = [
        replaceIds(replacer, bytes.subarray(0, at)),
        replaceIds(replacer, bytes.subarray(at)),
        takeUndecided(replacer),
      ];
      expect(Buffer.concat(out).toString()).toBe(expected);
    }
  });

  test.each([1, 63, 64, 65, 300])(
    'is replaced by an id of %i characters, as often as it stands',
    (length) => {
      const client = 'c'.repeat(length);
      for (const [count, before, between] of [
        [1, 0, 5000],
        [2, 100, 0],
        [50, 3, 200],
      ] as const) {
        const said = (id: string) =>
          'x'.repeat(before) + `"${id}"${'y'.repeat(between)}`.repeat(count) + 'z'.repeat(before);
        const replacer = channelReplacer({ client, upstream: UPSTREAM });
        const out = [replaceIds(replacer, Buffer.from(`${said(UPSTREAM)}\n`)), takeUndecided(replacer)];
        expect(Buffer.concat(out).toString()).toBe(`${said(client)}\n`);
      }
    },
  );

  test.each([36, 64, 80])(
    'is replaced by an id of %i characters where a plain search finds it, in short texts and long ones',
    (length) => {
      const names = { client: 'c'.repeat(length), upstream: UPSTREAM };
      const numbers = randomNumbers(length);
      const random = (below: number) => Math.floor(numbers() * below);
      for (let n = 0; n < 400; n += 1) {
        const count = 1 + random(n % 4 === 0 ? 200 : 12);
        const text = Array.from({ length: count }, () => PARTS[random(PARTS.length)]).join('');
        const bytes = Buffer.from(text);
        const at = random(bytes.length + 1);
        const replacer = channelReplacer(names);
        const out = [
          replaceIds(replacer, bytes.subarray(0, at)),
          replaceIds(replacer, bytes.subarray(at)),
          takeUndecided(replacer),
        ];
        expect(Buffer.concat(out).toString()).toBe(replacedNaively(text, `"${names.client}"`));
      }
    },
  );

  test('is replaced by one that is not longer without a copy', () => {
    for (const client of ['c', 'c'.repeat(64)]) {
      const bytes = Buffer.from(`data: {"customChannelId":"${UPSTREAM}","text":"Hello"}\n\n`);
      const replaced = replaceIds(channelReplacer({ client, upstream: UPSTREAM }), bytes);
      expect(replaced.buffer).toBe(bytes.buffer);
      // They end where the bytes end that came.
      expect(replaced.byteOffset + replaced.length).toBe(bytes.byteOffset + bytes.length);
      expect(replaced.length).toBe(bytes.length - 64 + client.length);
    }
  });

  test.each([...'0123456789abcdef'])('is found wherever it stands, of the digit %s too', (digit) => {
    const upstream = digit.repeat(64);
    for (let before = 0; before < 140; before += 1) {
      const said = (id: string) => `${'a'.repeat(before)}"${id}",\n`;
      const out = replaceIds(channelReplacer({ client: 'c', upstream }), Buffer.from(said(upstream)));
      expect(out.toString()).toBe(said('c'));
    }
  });

  test.each(['', 'ab-cd', 'AB', 'abg'])('must be hexadecimal, as %j is not', (upstream) => {
    expect(() => channelReplacer({ client: 'c', upstream })).toThrow('The upstream id is not hexadecimal.');
  });

  test.each(['\n', '\r', '\r\n'])('is never held back at the end of a line, %j', (end) => {
    expect(pushed(`data: "${UPSTREAM}${end}`, 1000)).toEqual({ text: `data: "${UPSTREAM}${end}`, held: 0 });
  });

  test('is held back at the end of a stream until that ends', () => {
    expect(pushed(`data: "${UPSTREAM}`, 1000)).toEqual({ text: `data: "${UPSTREAM}`, held: 65 });
  });

  test('and a backslash before it counts no more after the end of a stream', () => {
    const replacer = channelReplacer(NAMES);
    replaceIds(replacer, Buffer.from(`\\"${UPSTREAM}`));
    replaceIds(replacer, Buffer.from('\\"'));
    expect(takeUndecided(replacer).toString()).toBe('"');
    expect(takeUndecided(replacer).length).toBe(0);
    expect(replaceIds(replacer, Buffer.from(`"${UPSTREAM}"\n`)).toString()).toBe(`${CLIENT}\n`);
  });

  test('leaves bytes without it as they are, without a copy', () => {
    const bytes = Buffer.from('data: {"text":"Hello"}\n\n');
    expect(replaceIds(channelReplacer(NAMES), bytes).buffer).toBe(bytes.buffer);
  });
});

test('a text is the upstream id only as a whole', () => {
  const mask = (text: string) => text.replace('x', '[secret]');
  const text = withClientId(() => NAMES, mask);
  expect([text(UPSTREAM), text(`${UPSTREAM}.`), text('x')]).toEqual([
    NAMES.client,
    `${UPSTREAM}.`,
    '[secret]',
  ]);
  expect(withClientId(() => undefined, mask)(`${UPSTREAM}x`)).toBe(`${UPSTREAM}[secret]`);
});
