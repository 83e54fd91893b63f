import { afterAll, beforeAll, describe, expect, test } from '@jest/globals';
import { allowList, loggedBot } from '../../src/bots/allow-list.ts';
import { expectProblem } from '../harness/clients/call.ts';
import { failureOf } from '../harness/clients/error-event.ts';
import { startRelay, type TestRelay } from '../harness/relay/relay.ts';
import { codeThrownBy } from '../harness/relay/thrown-problem.ts';
import { type RawUpstream, startRawUpstream } from '../harness/service/raw-upstream.ts';

describe('the allow-list', () => {
  test.each([
    [['acme/helper'], 'acme', 'helper'],
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

  test.each<[string[], string | string[], string]>([
    [['acme/helper'], 'acme', 'Helper'],
    [['acme/helper'], 'acme', 'helper '],
    [['acme/helper'], 'acme', ''],
    [['acme/helper'], 'other', 'helper'],
    [['acme/help*'], 'acme', 'helper'],
    [['acme/*'], 'acme2', 'helper'],
    [['*/helper'], 'acme', 'other'],
    [['acme/*', '*/helper'], 'other', 'bot'],
    [['acme/helper'], '*', '*'],
    [['a,b/c', 'a/c'], ['a', 'b'], 'c'],
    [['a/b/c'], 'a', 'b/c'],
    ...[
      '.',
      '..',
      '',
      'a/b',
      '../b',
      'a\\b',
      '%2e%2e',
      'a%b',
      'a\0',
      'a\nb',
      'a\x7f',
      'x'.repeat(257),
    ].flatMap((segment): [string[], string, string][] => [
      [['*/*'], segment, 'helper'],
      [['*/*'], 'acme', segment],
    ]),
  ])('%j does not allow %j/%j', (patterns, namespace, botProviderName) => {
    expect(codeThrownBy(() => allowList(patterns)({ namespace, botProviderName }))).toBe('unknown_bot');
  });

  test.each([
    ['acme', 'a.b_c-9', 'acme/a.b_c-9'],
    ['acme', '机器人', 'acme/机器人'],
    ['acme', 'x'.repeat(65), undefined],
    ['a b', 'helper', undefined],
    ['acme', 'a=b', undefined],
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
    upstream = await startRawUpstream((socket) =>
      socket.end('HTTP/1.1 409 Conflict\r\nContent-Length: 0\r\nConnection: close\r\n\r\n'),
    );
    relay = await startRelay(upstream.url, { BOTS: 'acme/*,other/helper' });
    cookie = await relay.signIn();
  });
  afterAll(async () => {
    await relay.close();
    await upstream.close();
  });
  const pathOf = (namespace: string, bot: string) =>
    `/generic/ns/${namespace}/bot-provider/${encodeURIComponent(bot)}/message/sse`;

  test.each(['hélper', 'помощник', '机器人', 'ヘルパー', '🤖'])(
    'sends messages to %s, percent-encoded',
    async (bot) => {
      const response = await relay.send(cookie, { path: pathOf('acme', bot) });
      expect(await failureOf(response)).toMatchObject({ status: 409, code: 'upstream_refused' });
      const line = upstream.requests.at(-1)?.requestLine ?? '';
      expect(line).toMatch(/^[\x21-\x7e]+ [\x21-\x7e]+ HTTP\/1\.1$/);
      expect(line).toContain(pathOf('acme', bot));
    },
  );

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
