import { afterAll, beforeAll, describe, expect, test } from '@jest/globals';
import { allowList, loggedBot } from '../../src/bots/allow-list.ts';
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
