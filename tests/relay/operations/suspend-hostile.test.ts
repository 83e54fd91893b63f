import { afterEach, describe, expect, test } from '@jest/globals';
import { expectProblem, parseAnswer } from '../../harness/clients/call.ts';
import { rawClient } from '../../harness/clients/raw-client.ts';
import { jsonAnswer, rawSuspend, SUSPEND_PATH, suspend } from '../../harness/clients/suspend.ts';
import { CANARY } from '../../harness/relay/relay.ts';
import {
  plainAnswer,
  type RelayAndUpstream,
  startRelayAndUpstream,
  until,
} from '../../harness/relay/relay-and-upstream.ts';
import { startRawUpstream } from '../../harness/service/raw-upstream.ts';

let pair: RelayAndUpstream;
afterEach(() => pair.close());

async function start(answer: string | Buffer, environment: Record<string, string> = {}) {
  pair = await startRelayAndUpstream((socket) => void socket.write(answer), {
    CHANNELS: 'shared',
    ...environment,
  });
}

describe('an answer of the service to a suspend', () => {
  test.each([
    '500 Oh',
    '503 Busy',
    '504 Late',
    '410 Gone',
    '301 Moved',
    '418 Tea',
    '101 Switching Protocols',
  ])('with %s becomes 502', async (statusLine) => {
    await start(jsonAnswer(statusLine, {}, ['Retry-After: 7', 'Connection: upgrade', 'Upgrade: evil']));
    const answer = await suspend(pair);
    expect(answer.status).toBe(502);
    expect(answer.headers['retry-after']).toBeUndefined();
    expect(pair.upstream.requests).toHaveLength(1);
  });

  test('with 429 stays 429 with its Retry-After', async () => {
    await start(plainAnswer('429 Busy', ['Retry-After: 7']));
    const answer = await suspend(pair);
    expectProblem(answer, 429, 'upstream_rate_limited');
    expect(answer.headers['retry-after']).toBe('7');
  });

  test('that redirects becomes 502 and is not followed', async () => {
    const elsewhere = await startRawUpstream((socket) => void socket.write(jsonAnswer('200 OK', {})));
    await start(plainAnswer('307 Elsewhere', [`Location: ${elsewhere.url}${SUSPEND_PATH}`]));
    expectProblem(await suspend(pair), 502, 'upstream_bad_response');
    expect(elsewhere.sockets).toEqual([]);
    await elsewhere.close();
  });

  test.each([
    ['is compressed', plainAnswer('200 OK', ['Content-Encoding: gzip'], '{}')],
    ['is an HTML page', plainAnswer('200 OK', ['Content-Type: text/html'], '<p>hello')],
    ['is a 404 page', plainAnswer('404 No', ['Content-Type: text/html'], '<p>no')],
    ['is JSON by name only', plainAnswer('200 OK', ['Content-Type: application/json'], '<p>hello')],
    ['is nested too deeply', plainAnswer('200 OK', ['Content-Type: application/json'], '['.repeat(60_000))],
    ['is huge', `HTTP/1.1 200 OK\r\nContent-Length: 9000000\r\n\r\n${'x'.repeat(200_000)}`],
    ['is not HTTP', 'hello\r\n\r\n'],
    ['breaks the chunked coding', 'HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nevil\r\n\r\n'],
  ])('that %s becomes 502', async (_what, bytes) => {
    await start(bytes);
    expect((await suspend(pair)).status).toBe(502);
    await until(() => pair.upstream.sockets.every((socket) => socket.destroyed || _what !== 'is huge'));
  });

  test('that does not arrive in time becomes 504, before its head and in its body', async () => {
    const answers = ['', 'HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\n{'];
    pair = await startRelayAndUpstream((socket) => void socket.write(answers.shift() ?? ''), {
      UPSTREAM_RESPONSE_TIMEOUT_MS: '1000',
    });
    expectProblem(await suspend(pair), 504, 'upstream_timeout');
    expectProblem(await suspend(pair), 504, 'upstream_timeout');
    await until(() => pair.upstream.sockets.every(({ destroyed }) => destroyed));
  });

  test.each(['', 'HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\n{'])(
    'that breaks off after %j becomes 502',
    async (text) => {
      pair = await startRelayAndUpstream((socket) => {
        socket.write(text);
        setTimeout(() => socket.resetAndDestroy(), 20);
      });
      expectProblem(await suspend(pair), 502, 'upstream_unreachable');
      expect(pair.upstream.requests).toHaveLength(1);
    },
  );

  test('is passed on with only two of its headers, and without the key', async () => {
    const escaped = `\\u0063${CANARY.key.slice(1)}`;
    const body = `{"a":"${escaped}","a":1,"${CANARY.key}":["${escaped}"]}`;
    const headers = ['Content-Type: application/json; charset=utf-8', `X-Trace-Id: ${CANARY.key}`];
    await start(plainAnswer('200 OK', [...headers, 'Set-Cookie: evil=1', 'Server: evil', 'X-Evil: 1'], body));
    const answer = await suspend(pair);
    expect([answer.status, answer.body]).toEqual([200, '{"a":"[secret]","a":1,"[secret]":["[secret]"]}']);
    expect(JSON.stringify(answer.headers)).not.toMatch(/evil|trace/);
    expect(answer.headers['content-type']).toBe('application/json');
  });
});

test('a client that leaves ends the request to the service', async () => {
  await start('');
  const client = rawClient(pair.relay.port, rawSuspend(pair));
  await until(() => pair.upstream.requests.length === 1);
  client.socket.destroy();
  await until(() => pair.upstream.sockets.every(({ destroyed }) => destroyed));
  expect(await pair.relay.logLine(({ bot }) => bot === 'acme/helper')).toMatchObject({
    ...{ status: 499, outcome: 'client_closed' },
  });
});

describe('of the suspend request of a client,', () => {
  test('only headers that the service needs go upstream', async () => {
    await start(jsonAnswer('200 OK', {}), { USER_HEADER: 'X-User-Id' });
    const client = rawClient(
      pair.relay.port,
      rawSuspend(pair, [
        ...['Authorization: Bearer evil', 'X-API-KEY: evil-1', 'x-Api-Key: evil-2', 'X_API_KEY: evil-3'],
        ...['Expect: 100-continue', 'Connection: x-api-key, close', 'Keep-Alive: evil', 'TE: trailers'],
        ...['X-Forwarded-For: 6.6.6.6', 'Via: 1.1 evil', 'X-User-Id: evil', 'Accept-Encoding: evil'],
        ...['X-HTTP-Method-Override: evil', 'Content-Type: evil/evil', 'Referer: http://evil.example'],
        ...[
          'X-ASGARD-USER-IDENTITY-HINT: evil',
          'X-Asgard-Webhook-Token: evil',
          'X-Request-Id: request-0001',
        ],
        'traceparent: 00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01',
      ]),
    );
    await client.waitFor('{}');
    const [request] = pair.upstream.requests;
    const headers = request?.headers.map(([name, value]) => [name.toLowerCase(), value]) ?? [];
    expect(Object.fromEntries(headers)).toEqual({
      host: new URL(pair.upstream.url).host,
      accept: 'application/json',
      'accept-encoding': 'identity',
      connection: 'keep-alive',
      'content-length': '0',
      traceparent: '00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01',
      'x-api-key': CANARY.key,
      'x-request-id': 'request-0001',
      'x-user-id': 'ada',
    });
    expect(headers).toHaveLength(9);
  });

  test.each([
    ['', 'invalid_conversation'],
    ['?custom_channel_id=', 'invalid_conversation'],
    ['?custom_channel_id=a&custom_channel_id=b', 'invalid_conversation'],
    ['?custom_channel_id=a&customChannelId=b', 'invalid_conversation'],
    [`?custom_channel_id=${'a'.repeat(257)}`, 'invalid_conversation'],
    ['?custom_channel_id=a&force=true&force=true', 'invalid_query'],
    ['?custom_channel_id=a&force=evil', 'invalid_query'],
    ['?custom_channel_id=a&request_id=', 'invalid_query'],
    ['?custom_channel_id=%zz', 'invalid_query'],
    ['?custom_channel_id=%ff', 'invalid_query'],
  ] as const)('the query %j is refused with %s', async (query, code) => {
    await start(jsonAnswer('200 OK', {}));
    expectProblem(await suspend(pair, { query }), 400, code);
    expect(pair.upstream.requests).toEqual([]);
  });

  test.each([
    ['?custom_channel_id=a&bypass_tool_call_consent=true&x=1', 'custom_channel_id=a'],
    ['?custom_channel_id=%0d%0aX-Evil:1', 'custom_channel_id=%0D%0AX-Evil%3A1'],
    [
      '?force=true&request_id=r%2F1%26x&custom_channel_id=a%20b',
      'custom_channel_id=a+b&request_id=r%2F1%26x&force=true',
    ],
  ])('of the query %j goes upstream %s', async (query, upstream) => {
    await start(jsonAnswer('200 OK', {}));
    expect((await suspend(pair, { query })).status).toBe(200);
    expect(pair.upstream.requests[0]?.requestLine).toBe(`POST ${SUSPEND_PATH}?${upstream} HTTP/1.1`);
  });

  test.each(['Content-Length: 2\r\n\r\n{}', 'Transfer-Encoding: chunked\r\n\r\n2\r\n{}\r\n0'])(
    'a body is refused: %j',
    async (rest) => {
      await start(jsonAnswer('200 OK', {}));
      const client = rawClient(pair.relay.port, rawSuspend(pair, [rest]));
      await client.waitFor('"requestId"');
      expectProblem(parseAnswer(client.text()), 413, 'body_too_large');
      expect(pair.upstream.requests).toEqual([]);
      client.socket.destroy();
    },
  );

  test.each(['..', '%2e%2e', 'a%2Fb', '%00', 'a%5Cb'])('the bot name %s is answered 404', async (bot) => {
    await start('', { BOTS: '*/*' });
    const client = rawClient(pair.relay.port, rawSuspend(pair, [], SUSPEND_PATH.replace('helper', bot)));
    await client.waitFor('"requestId"');
    expect(parseAnswer(client.text()).status).toBe(404);
    expect(pair.upstream.requests).toEqual([]);
    client.socket.destroy();
  });
});
