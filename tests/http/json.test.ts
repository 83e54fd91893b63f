import { describe, expect, test } from '@jest/globals';
import fc from 'fast-check';
import { jsonMembers, replaceStrings } from '../../src/http/json.ts';

/** Texts of the characters that mean something in JSON, or have several bytes. */
const text = fc.string({ unit: fc.constantFrom(...'"\\{}[]:, aä€😀\u0001\u2028'), maxLength: 6 });
const { value } = fc.letrec<{ value: unknown }>((tie) => ({
  value: fc.oneof(
    { depthSize: 'small', withCrossShrink: true },
    fc.oneof(fc.integer(), fc.double({ noNaN: true, noDefaultInfinity: true })),
    text,
    fc.constantFrom(true, false, null),
    fc.array(tie('value'), { maxLength: 4 }),
    fc.dictionary(text, tie('value'), { maxKeys: 4, noNullPrototype: true }),
  ),
}));
const object = fc.dictionary(text, value, { noNullPrototype: true });
const space = fc.constantFrom('', ' ', '\t');

/** The names of the members, and the texts of their values. */
function texts(json: string): [string, string][] {
  const bytes = Buffer.from(json);
  return jsonMembers(bytes).map(({ name, from, to }) => [name, bytes.toString('utf8', from, to)]);
}
/** The names and the parsed values of the members. */
const read = (json: string) => texts(json).map(([name, text]) => [name, JSON.parse(text)]);

describe('the members of a JSON object', () => {
  test.each(['{}', '[{"a":1}]', '"{\\"a\\":1}"', '7'])('are none in %s', (json) =>
    expect(read(json)).toEqual([]),
  );

  test.each<[string, [string, unknown][]]>([
    [' \t\r\n{ "a" : 1 , "b":\n[ ] }', Object.entries({ a: 1, b: [] })],
    ['{"a":1,"a":2}', [...Object.entries({ a: 1 }), ...Object.entries({ a: 2 })]],
    ['{"\\u0061\\"":null,"n":-1.5e+10,"t":true}', Object.entries({ 'a"': null, n: -1.5e10, t: true })],
  ])('are found with their places in %s', (json, members) => {
    expect(read(json)).toEqual(members);
  });

  // `JSON.parse` is no model: V8 may take an escaped name for one that it has read before (nodejs/node#63785).
  test('are those that JSON.stringify has written, of any object', () =>
    fc.assert(
      fc.property(object, space, (of, indent) => {
        const written = Object.entries(of).map(([name, each]) => [
          name,
          JSON.stringify(each, undefined, indent).replaceAll('\n', `\n${indent}`),
        ]);
        expect(texts(JSON.stringify(of, undefined, indent))).toEqual(written);
      }),
      { numRuns: 1000 },
    ));
});

const swap = (each: string) => (each === 'old' ? 'n"ew\n' : each);

describe('the strings of JSON that are replaced', () => {
  test.each([
    ['"old"', '"n\\"ew\\n"'],
    ['{"old":1,"a":{"old":"old"}}', '{"n\\"ew\\n":1,"a":{"n\\"ew\\n":"n\\"ew\\n"}}'],
    ['["\\u006fl\\u0064","\\\\old","\\"old","old\\\\"]', '["n\\"ew\\n","\\\\old","\\"old","old\\\\"]'],
    [
      '{ "big":12345678901234567890,\t"e":1E400, "é":"\\/", "x":"old"}\r\n',
      '{ "big":12345678901234567890,\t"e":1E400, "é":"\\/", "x":"n\\"ew\\n"}\r\n',
    ],
    ['{"__proto__":"old"}', '{"__proto__":"n\\"ew\\n"}'],
  ])('are found wherever they stand in %s, and every other byte stays', (json, expected) => {
    expect(replaceStrings(Buffer.from(json), swap).toString()).toBe(expected);
  });

  test('leave a text without them as the same buffer', () =>
    fc.assert(
      fc.property(value, (of) => {
        const bytes = Buffer.from(JSON.stringify(of));
        expect(replaceStrings(bytes, swap)).toBe(bytes);
      }),
    ));

  test('are all that JSON.stringify has written, of any value', () => {
    const mark = (each: unknown): unknown => {
      if (typeof each === 'string') return `<${each}>`;
      if (Array.isArray(each)) return each.map(mark);
      if (typeof each !== 'object' || each === null) return each;
      return Object.fromEntries(Object.entries(each).map(([name, inner]) => [`<${name}>`, mark(inner)]));
    };
    fc.assert(
      fc.property(value, space, (of, indent) => {
        const bytes = Buffer.from(JSON.stringify(of, undefined, indent));
        const replaced = String(replaceStrings(bytes, (each) => `<${each}>`));
        expect(replaced).toBe(JSON.stringify(mark(of), undefined, indent));
      }),
      { numRuns: 1000 },
    );
  });
});

// In a time that grows with the square of the length, this would take longer than a test may.
test.each([
  ['levels', (n: number) => `{"a":${'['.repeat(n)}${']'.repeat(n)},"b":"old"}`],
  ['escapes', (n: number) => `{"a":"${'\\\\'.repeat(n)}","b":"old"}`],
  ['quotes', (n: number) => `{"a":"${'\\"'.repeat(n)}","b":"old"}`],
  ['members', (n: number) => `{${'"a":1,'.repeat(n)}"b":"old"}`],
  ['strings to replace', (n: number) => `{"a":[${'"old",'.repeat(n)}""],"b":"old"}`],
])('a JSON object with very many %s is read quickly', (_what, make) => {
  const bytes = Buffer.from(make(300_000));
  expect(jsonMembers(bytes).at(-1)?.name).toBe('b');
  expect(String(replaceStrings(bytes, swap)).endsWith(`"b":"n\\"ew\\n"}`)).toBe(true);
});
