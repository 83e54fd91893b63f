import { afterAll, beforeAll, describe, expect, test } from '@jest/globals';
import { allowList, loggedBot } from '../../src/bots/allow-list.ts';
import type { Problem } from '../../src/errors.ts';
import { call, expectProblem } from '../harness/clients/call.ts';
import { failureOf } from '../harness/clients/error-event.ts';
import { MESSAGE, startRelay, type TestRelay } from '../harness/relay/relay.ts';
import { type RawUpstream, startRawUpstream } from '../harness/service/raw-upstream.ts';

/** The result of the allow-list for a bot: the bot, or the code of the refusal. */
function judge(patterns: string[], namespace: string, botProviderName: string): unknown {
  try {
    return allowList(patterns)({ namespace, botProviderName });
  } catch (error) {
    return (error as Problem).code;
  }
}

describe('the allow-list', () => {
  test('takes no other path for a bot that was asked for before', () => {
    const allowedBot = allowList(['a,b/c', 'a/c']);
    for (let n = 0; n < 2; n += 1) {
      expect(allowedBot({ namespace: 'a,b', botProviderName: 'c' })).toEqual({
        ...{ namespace: 'a,b', botProviderName: 'c' },
      });
      expect(() => allowedBot({ namespace: ['a', 'b'], botProviderName: 'c' })).toThrow('no such bot');
      expect(() => allowedBot({ namespace: 'a', botProviderName: 'b/c' })).toThrow('no such bot');
      expect(() => allowedBot({ namespace: 'a', botProviderName: 'd' })).toThrow('no such bot');
    }
  });

  test.each([
    [['acme/helper'], 'acme', 'helper'],
    [['x/y', 'acme/helper'], 'acme', 'helper'],
    [['acme/*'], 'acme', 'anything'],
    [['*/helper'], 'anybody', 'helper'],
    [['*/*'], 'anybody', 'anything'],
    [['*/*'], 'a b', '机器人'],
    [['*/*'], '...', '.x'],
    [['*/*'], 'x'.repeat(256), 'y'.repeat(256)],
  ])('%j allows %s/%s', (patterns, namespace, botProviderName) => {
    expect(judge(patterns, namespace, botProviderName)).toEqual({ namespace, botProviderName });
  });

  test.each([
    [['acme/helper'], 'acme', 'Helper'],
    [['acme/helper'], 'acme', 'helper '],
    [['acme/helper'], 'acme', ''],
    [['acme/helper'], 'other', 'helper'],
    [['acme/help*'], 'acme', 'helper'],
    [['acme/*'], 'acme2', 'helper'],
    [['*/helper'], 'acme', 'other'],
    [['acme/*', '*/helper'], 'other', 'bot'],
    [['acme/helper'], '*', '*'],
  ])('%j does not allow %s/%s', (patterns, namespace, botProviderName) => {
    expect(judge(patterns, namespace, botProviderName)).toBe('unknown_bot');
  });

  test.each(['.', '..', '', 'a/b', '../b', 'a\\b', '%2e%2e', 'a%b', 'a\0', 'a\nb', 'a\x7f', 'x'.repeat(257)])(
    '*/* does not allow %j as namespace or bot',
    (segment) => {
      expect(judge(['*/*'], segment, 'helper')).toBe('unknown_bot');
      expect(judge(['*/*'], 'acme', segment)).toBe('unknown_bot');
    },
  );
});

const HIDDEN = [
  '\x80',
  '\x9b',
  '\u00ad',
  '\u200b',
  '\u200d',
  '\u200e',
  '\u2028',
  '\u2029',
  '\u202e',
  '\u2066',
  '\ufeff',
];

describe('a wildcard', () => {
  let upstream: RawUpstream;
  let relay: TestRelay;
  let cookie: string;
  beforeAll(async () => {
    upstream = await startRawUpstream((socket) =>
      socket.end('HTTP/1.1 409 Conflict\r\nContent-Length: 0\r\nConnection: close\r\n\r\n'),
    );
    relay = await startRelay(upstream.url, { BOTS: 'acme/*' });
    cookie = await relay.signIn();
  });
  afterAll(async () => {
    await relay.close();
    await upstream.close();
  });

  const pathOf = (bot: string) => `/generic/ns/acme/bot-provider/${encodeURIComponent(bot)}/message/sse`;

  test.each(HIDDEN.map(encodeURIComponent))('does not match %s, an invisible character', async (hidden) => {
    const asked = upstream.sockets.length;
    const { status, headers, body } = await call(relay.port, pathOf(`a${decodeURIComponent(hidden)}b`), {
      method: 'POST',
      headers: { Cookie: cookie, 'Content-Type': 'application/json' },
      body: MESSAGE,
    });
    expectProblem({ status, headers, body }, 404, 'unknown_bot');
    expect(upstream.sockets).toHaveLength(asked);
  });

  test.each(['hélper', 'помощник', '机器人', 'ヘルパー', '🤖'])(
    'matches %s, percent-encoded',
    async (bot) => {
      const response = await relay.send(cookie, { path: pathOf(bot) });
      expect(await failureOf(response)).toMatchObject({ status: 409, code: 'upstream_refused' });
      const line = upstream.requests.at(-1)?.requestLine ?? '';
      expect(line).toMatch(/^[\x21-\x7e]+ [\x21-\x7e]+ HTTP\/1\.1$/);
      expect(line).toContain(pathOf(bot));
    },
  );
});

describe('the log of a bot that may not be on the list', () => {
  test.each([
    ['acme', 'a.b_c-9', 'acme/a.b_c-9'],
    ['acme', '机器人', 'acme/机器人'],
    ['acme', 'x'.repeat(65), undefined],
    ['a b', 'helper', undefined],
    ['acme', 'a=b', undefined],
    ['', 'helper', undefined],
  ])('for %j and %j has %j', (namespace, botProviderName, bot) => {
    expect(loggedBot({ namespace, botProviderName })).toBe(bot);
  });
});

describe('a bot that is not on the list', () => {
  let upstream: RawUpstream;
  let relay: TestRelay;
  let cookie: string;
  beforeAll(async () => {
    upstream = await startRawUpstream((socket) =>
      socket.end('HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\nConnection: close\r\n\r\n'),
    );
    relay = await startRelay(upstream.url, { BOTS: 'acme/helper,acme/retired' });
    cookie = await relay.signIn();
  });
  afterAll(async () => {
    await relay.close();
    await upstream.close();
  });

  async function answerOf(bot: string) {
    const response = await relay.send(cookie, {
      path: `/generic/ns/${bot}/message/sse`.replace('BP', 'bot-provider'),
      headers: { 'X-Request-Id': 'the-same-id' },
      body: MESSAGE,
    });
    const headers = Object.fromEntries(response.headers);
    delete headers.date;
    return { status: response.status, headers, body: await response.text() };
  }

  test('gets the same answer whether it exists or not, without a request to the bot service', async () => {
    const existing = await answerOf('secret/BP/helper');
    expectProblem(existing, 404, 'unknown_bot');
    expect(await relay.logLine(({ bot }) => bot === 'secret/helper')).toMatchObject({
      outcome: 'unknown_bot',
    });
    expect(await answerOf('nowhere/BP/nothing')).toEqual(existing);
    expect(await answerOf('acme/BP/HELPER')).toEqual(existing);
    expect(upstream.sockets).toHaveLength(0);
  });
});
