import { describe, expect, test } from '@jest/globals';
import { jsonMembers } from '../../src/http/json.ts';

const SIZE = 300_000;

/** The names and the parsed values of the members. */
function read(json: string): [string, unknown][] {
  const bytes = Buffer.from(json);
  return jsonMembers(bytes).map(({ name, from, to }) => [name, JSON.parse(bytes.toString('utf8', from, to))]);
}

describe('the members of a JSON object', () => {
  test.each([
    ['{}', []],
    ['[{"a":1}]', []],
    ['"{\\"a\\":1}"', []],
    ['7', []],
    [
      ' \t\r\n{ "a" : 1 , "b":\n[ ] }',
      [
        ['a', 1],
        ['b', []],
      ],
    ],
    [
      '{"a":1,"a":2}',
      [
        ['a', 1],
        ['a', 2],
      ],
    ],
    ['{"\\u0061\\"":null}', [['a"', null]]],
    [
      '{"a":"\\\\","b":"\\\\\\""}',
      [
        ['a', '\\'],
        ['b', '\\"'],
      ],
    ],
    [
      '{"a":{"b":"}]\\"{["},"c":[{"d":[]},"]"]}',
      [
        ['a', { b: '}]"{[' }],
        ['c', [{ d: [] }, ']']],
      ],
    ],
    [
      '{"n":-1.5e+10,"t":true,"f":false}',
      [
        ['n', -1.5e10],
        ['t', true],
        ['f', false],
      ],
    ],
    ['{"ä€😀":"ä€😀"}', [['ä€😀', 'ä€😀']]],
    ['{"__proto__":1}', [['__proto__', 1]]],
  ])('are found with their places in %s', (json, members) => {
    expect(read(json)).toEqual(members);
  });

  test('of random objects are those that JSON.parse finds', () => {
    let seed = 7;
    const random = (below: number) => {
      seed = (seed * 1_103_515_245 + 12_345) % 2 ** 31;
      return seed % below;
    };
    const text = () =>
      Array.from({ length: random(6) }, () => '"\\{}[]:, ä€😀\u0001a'[random(18)] ?? 'x').join('');
    const value = (depth: number): unknown => {
      const kind = random(depth > 3 ? 3 : 5);
      if (kind === 0) return random(1000) - 500;
      if (kind === 1) return text().toWellFormed();
      if (kind === 2) return [true, false, null][random(3)];
      const inner = Array.from({ length: random(4) }, () => value(depth + 1));
      return kind === 3
        ? inner
        : Object.fromEntries(inner.map((each, i) => [`${text().toWellFormed()}${i}`, each]));
    };
    for (let round = 0; round < 2000; round += 1) {
      const object = { [`k${round}`]: value(0), [text().toWellFormed()]: value(0), last: value(0) };
      expect(read(JSON.stringify(object, undefined, random(3)))).toEqual(Object.entries(object));
    }
  });

  // In a time that grows with the square of the length, this would take longer than a test may.
  test.each([
    ['very deep', (n: number) => `{"a":${'['.repeat(n)}${']'.repeat(n)}}`, 1],
    ['full of escapes', (n: number) => `{"a":"${'\\\\'.repeat(n)}"}`, 1],
    ['full of quotes', (n: number) => `{"a":"${'\\"'.repeat(n)}"}`, 1],
    ['very long', (n: number) => `{${'"a":1,'.repeat(n)}"b":2}`, SIZE + 1],
  ])('are found in an object that is %s', (_how, make, count) => {
    expect(jsonMembers(Buffer.from(make(SIZE)))).toHaveLength(count);
  });
});
