import { describe, expect, test } from '@jest/globals';
import { replaceStrings } from '../../src/http/json.ts';

const swap = (text: string) => (text === 'old' ? 'n"ew\n' : text);
const replaced = (json: string) => replaceStrings(Buffer.from(json), swap).toString();

describe('the strings of JSON that are replaced', () => {
  test.each([
    ['"old"', '"n\\"ew\\n"'],
    [' [ "old" ,"older", "an old one" ] ', ' [ "n\\"ew\\n" ,"older", "an old one" ] '],
    ['{"old":1,"a":{"old":"old"}}', '{"n\\"ew\\n":1,"a":{"n\\"ew\\n":"n\\"ew\\n"}}'],
    ['["\\u006fl\\u0064","\\\\old","\\"old","old\\\\"]', '["n\\"ew\\n","\\\\old","\\"old","old\\\\"]'],
    ['{"a":"old","a":"old"}', '{"a":"n\\"ew\\n","a":"n\\"ew\\n"}'],
    [
      '{ "big":12345678901234567890,\t"e":1E400, "é":"\\/", "x":"old"}\r\n',
      '{ "big":12345678901234567890,\t"e":1E400, "é":"\\/", "x":"n\\"ew\\n"}\r\n',
    ],
    ['{"__proto__":"old"}', '{"__proto__":"n\\"ew\\n"}'],
  ])('are found wherever they stand in %s', (json, expected) => {
    expect(replaced(json)).toBe(expected);
  });

  test.each(['1', 'null', '[]', '""', '{"a":"\\ud800","b":"😀","c":1.0e5}', '["older","\\\\"]'])(
    'leave %s as the same buffer if there are none',
    (json) => {
      const bytes = Buffer.from(json);
      expect(replaceStrings(bytes, swap)).toBe(bytes);
    },
  );

  test('are all that JSON.parse finds, in random values', () => {
    let seed = 11;
    const random = (below: number) => {
      seed = (seed * 1_103_515_245 + 12_345) % 2 ** 31;
      return (seed >> 8) % below;
    };
    const text = () =>
      Array.from({ length: random(5) }, () => '"\\{}[]:, ä😀\u0001a'.at(random(13))).join('');
    const value = (depth: number): unknown => {
      const kind = random(depth > 3 ? 3 : 5);
      if (kind === 0) return random(1000) - 500;
      if (kind < 3) return text();
      const inner = Array.from({ length: random(4) }, () => value(depth + 1));
      return kind === 3 ? inner : Object.fromEntries(inner.map((each, i) => [`${text()}${i}`, each]));
    };
    const mark = (each: unknown): unknown => {
      if (typeof each === 'string') return `<${each}>`;
      if (Array.isArray(each)) return each.map(mark);
      if (typeof each !== 'object' || each === null) return each;
      return Object.fromEntries(Object.entries(each).map(([name, inner]) => [`<${name}>`, mark(inner)]));
    };
    for (let round = 0; round < 2000; round += 1) {
      const whole = value(0);
      const bytes = Buffer.from(JSON.stringify(whole, undefined, random(3)));
      expect(JSON.parse(String(replaceStrings(bytes, (each) => `<${each}>`)))).toEqual(mark(whole));
    }
  });

  // In a time that grows with the square of the length, this would take longer than a test may.
  test.each([
    ['escapes', (n: number) => `["${'\\\\'.repeat(n)}","old"]`],
    ['quotes', (n: number) => `["${'\\"'.repeat(n)}","old"]`],
    ['empty strings', (n: number) => `[${'"",'.repeat(n)}"old"]`],
    ['strings to replace', (n: number) => `[${'"old",'.repeat(n)}"old"]`],
  ])('are found behind very many %s', (_what, make) => {
    expect(replaced(make(300_000)).endsWith(`"n\\"ew\\n"]`)).toBe(true);
  });
});
