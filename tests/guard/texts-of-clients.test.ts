import { afterAll, beforeAll, describe, expect, test } from '@jest/globals';
import fc from 'fast-check';
import { allowList, loggedBot } from '../../src/bots/allow-list.ts';
import { jsonMembers, replaceStrings } from '../../src/http/json.ts';
import { isPlainPath, isPlainRelativePath } from '../../src/http/plain-path.ts';
import { expectProblem } from '../harness/clients/call.ts';
import { failureOf } from '../harness/clients/error-event.ts';
import { startRelay, type TestRelay } from '../harness/relay/relay.ts';
import { codeThrownBy } from '../harness/relay/thrown-problem.ts';
import { plainAnswer, type RawUpstream, startRawUpstream } from '../harness/service/raw-upstream.ts';

describe('the allow-list', () => {
  test.each([
    [['x/y', 'acme/helper'], 'acme', 'helper'],
    [['acme/*'], 'acme', 'anything'],
    [['*/helper'], 'anybody', 'helper'],
    [['*/*'], 'a b', '机器人'],
    [['*/*'], '...', '.x'],
    [['*/*'], 'x'.repeat(256), 'y'.repeat(256)],
    [['a,b/c', 'a/c'], 'a,b', 'c'],
  ])('%j allows %s/%s', (patterns, namespace, botProviderName) => {
    const bot = { namespace, botProviderName };
    expect(allowList(patterns)(bot)).toEqual(bot);
  });

  const NO_SEGMENTS = [
    '.',
    '..',
    '',
    'a/b',
    'a\\b',
    'a%b',
    'a\0',
    'a\nb',
    'a\x7f',
    'a\u200bb',
    'x'.repeat(257),
  ];
  test.each<[string[], string | string[], string]>([
    [['acme/helper'], 'acme', 'Helper'],
    [['acme/helper'], 'other', 'helper'],
    [['acme/help*'], 'acme', 'helper'],
    [['acme/*', '*/helper'], 'other', 'bot'],
    [['acme/helper'], '*', '*'],
    [['a,b/c', 'a/c'], ['a', 'b'], 'c'],
    [['a/b/c'], 'a', 'b/c'],
    ...NO_SEGMENTS.map((segment): [string[], string, string] => [['*/*'], segment, 'helper']),
    ...NO_SEGMENTS.map((segment): [string[], string, string] => [['*/*'], 'acme', segment]),
  ])('%j does not allow %j/%j', (patterns, namespace, botProviderName) => {
    expect(codeThrownBy(() => allowList(patterns)({ namespace, botProviderName }))).toBe('unknown_bot');
  });

  test.each([
    ['acme', 'a.b_c-机器人', 'acme/a.b_c-机器人'],
    ['acme', 'x'.repeat(65), undefined],
    ['a b', 'helper', undefined],
    ['', 'helper', undefined],
  ])('has %j and %j logged as %j', (namespace, botProviderName, bot) => {
    expect(loggedBot({ namespace, botProviderName })).toBe(bot);
  });
});

describe('a relay with a list', () => {
  let upstream: RawUpstream;
  let relay: TestRelay;
  let cookie: string;
  beforeAll(async () => {
    upstream = await startRawUpstream((socket) => socket.end(plainAnswer('409 Conflict', [], '')));
    relay = await startRelay(upstream.url, { BOTS: 'acme/*,other/helper' });
    cookie = await relay.signIn();
  });
  afterAll(async () => {
    await relay.close();
    await upstream.close();
  });
  const pathOf = (namespace: string, bot: string) =>
    `/generic/ns/${namespace}/bot-provider/${encodeURIComponent(bot)}/message/sse`;

  test.each(['hélper', '机器人', '🤖'])('sends messages to %s, percent-encoded', async (bot) => {
    const response = await relay.send(cookie, { path: pathOf('acme', bot) });
    expect(await failureOf(response)).toMatchObject({ status: 409, code: 'upstream_refused' });
    const line = upstream.requests.at(-1)?.requestLine ?? '';
    expect(line).toMatch(/^[\x21-\x7e]+ [\x21-\x7e]+ HTTP\/1\.1$/);
    expect(line).toContain(pathOf('acme', bot));
  });

  test('gives the same answer for every bot that is not on it, without asking the service', async () => {
    const opened = upstream.sockets.length;
    const answerOf = async (namespace: string, bot: string) => {
      const headers = { 'X-Request-Id': 'the-same-id' };
      const response = await relay.send(cookie, { path: pathOf(namespace, bot), headers });
      const all = Object.fromEntries(response.headers);
      delete all.date;
      return { status: response.status, headers: all, body: await response.text() };
    };
    const existing = await answerOf('secret', 'helper');
    expectProblem(existing, 404, 'unknown_bot');
    const line = await relay.logLine(({ bot }) => bot === 'secret/helper');
    expect(line).toMatchObject({ outcome: 'unknown_bot' });
    expect(await answerOf('nowhere', 'nothing')).toEqual(existing);
    expect(await answerOf('other', 'HELPER')).toEqual(existing);
    expect(upstream.sockets).toHaveLength(opened);
  });
});

describe('a path', () => {
  test.each(['a/b.txt', 'a..b/c', '報告/１月.pdf', 'é/e\u0301', '50%/…', 'a%20b', 'Report: Q1.txt', './a'])(
    '%s is plain and relative',
    (path) => expect([isPlainPath(path), isPlainRelativePath(path)]).toEqual([true, true]),
  );

  test.each([
    ...['..', 'a/../b', '%252e%252e/a', 'a\\b', 'a\n', '%ff', 'x'.repeat(1025), ''],
    // What leads elsewhere for a service that reads the letters of another width as the usual ones.
    ...['\uff0e\uff0e/x', '\u2025/x', 'a\uff0f../b', 'a\uff3cb', '\uff052e%2e/x', '%ef%bc%8e%EF%BC%8E/x'],
    // What is not seen, and what some services drop.
    ...['.\u200b./x', 'a/.\u00ad./b', '%E2%80%8B../x'],
  ])('%j is not plain', (path) => {
    expect([isPlainPath(path), isPlainRelativePath(path)]).toEqual([false, false]);
  });

  test.each(['/etc/passwd', '//host/x', '%252Fetc', '\uff0fetc', 'C:/x', 'file:///x', '\u200b/x'])(
    '%s is plain, and not relative',
    (path) => expect([isPlainPath(path), isPlainRelativePath(path)]).toEqual([true, false]),
  );
});

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
