import { afterEach, describe, expect, test } from '@jest/globals';
import { expectProblem, parseAnswer } from '../../support/call.ts';
import { type Pair, plainAnswer, startPair, until } from '../../support/pair.ts';
import { rawClient } from '../../support/raw-client.ts';
import { startRawUpstream } from '../../support/raw-upstream.ts';
import { CANARY } from '../../support/relay.ts';
import { jsonAnswer, rawSuspend, SUSPEND_PATH, suspend } from '../../support/suspend.ts';

let pair: Pair;
afterEach(() => pair.close());

async function start(answer: string | Buffer, environment: Record<string, string> = {}) {
  pair = await startPair((socket) => void socket.write(answer), environment);
}

describe('an answer of the service', () => {
  test.each(['500 Oh', '503 Busy', '504 Late', '400 Bad', '301 Moved', '418 Tea', '101 Switching Protocols'])(
    '%s is 502',
    async (statusLine) => {
      await start(jsonAnswer(statusLine, {}, ['Retry-After: 7', 'Connection: upgrade', 'Upgrade: evil']));
      const answer = await suspend(pair);
      expect(answer.status).toBe(502);
      expect(answer.headers['retry-after']).toBeUndefined();
      expect(pair.upstream.requests).toHaveLength(1);
    },
  );

  test('429 is 429 with its time to wait', async () => {
    await start(plainAnswer('429 Busy', ['Retry-After: 7']));
    const answer = await suspend(pair);
    expectProblem(answer, 429, 'upstream_rate_limited');
    expect(answer.headers['retry-after']).toBe('7');
  });

  test('that redirects is 502 and not followed', async () => {
    const elsewhere = await startRawUpstream((socket) => void socket.write(jsonAnswer('200 OK', {})));
    await start(plainAnswer('307 Elsewhere', [`Location: ${elsewhere.url}${SUSPEND_PATH}`]));
    expectProblem(await suspend(pair), 502, 'upstream_bad_response');
    expect(elsewhere.sockets).toEqual([]);
    await elsewhere.close();
  });

  test.each([
    ['is compressed', plainAnswer('200 OK', ['Content-Encoding: gzip'], '{}')],
    ['is a page', plainAnswer('200 OK', ['Content-Type: text/html'], '<p>hello')],
    ['is a 404 page', plainAnswer('404 No', ['Content-Type: text/html'], '<p>no')],
    ['is JSON by name only', plainAnswer('200 OK', ['Content-Type: application/json'], '<p>hello')],
    ['is too deep', plainAnswer('200 OK', ['Content-Type: application/json'], '['.repeat(60_000))],
    ['is huge', `HTTP/1.1 200 OK\r\nContent-Length: 9000000\r\n\r\n${'x'.repeat(200_000)}`],
    ['is no HTTP', 'hello\r\n\r\n'],
    ['breaks the chunked coding', 'HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nevil\r\n\r\n'],
  ])('that %s is 502', async (_what, bytes) => {
    await start(bytes);
    expect((await suspend(pair)).status).toBe(502);
    await until(() => pair.upstream.sockets.every((socket) => socket.destroyed || _what !== 'is huge'));
  });

  test('that hangs is 504, before its head and in its body', async () => {
    const answers = ['', 'HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\n{'];
    pair = await startPair((socket) => void socket.write(answers.shift() ?? ''), {
      UPSTREAM_RESPONSE_TIMEOUT_MS: '1000',
    });
    expectProblem(await suspend(pair), 504, 'upstream_timeout');
    expectProblem(await suspend(pair), 504, 'upstream_timeout');
    await until(() => pair.upstream.sockets.every(({ destroyed }) => destroyed));
  });

  test.each(['', 'HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\n{'])(
    'that breaks after %j is 502',
    async (text) => {
      pair = await startPair((socket) => {
        socket.write(text);
        setTimeout(() => socket.resetAndDestroy(), 20);
      });
      expectProblem(await suspend(pair), 502, 'upstream_unreachable');
      expect(pair.upstream.requests).toHaveLength(1);
    },
  );

  test('shows no header but two, and no key', async () => {
    const escaped = `\\u0063${CANARY.key.slice(1)}`;
    const body = `{"a":"${escaped}","a":1,"${CANARY.key}":["${escaped}"]}`;
    const headers = ['Content-Type: application/json; charset=utf-8', `X-Trace-Id: ${CANARY.key}`];
    await start(plainAnswer('200 OK', [...headers, 'Set-Cookie: evil=1', 'Server: evil', 'X-Evil: 1'], body));
    const answer = await suspend(pair);
    expect([answer.status, answer.body]).toEqual([200, '{"a":1,"[secret]":["[secret]"]}']);
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

describe('of what a client sends', () => {
  test('only what the service needs goes upstream', async () => {
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
    ['', 400],
    ['?custom_channel_id=', 400],
    ['?custom_channel_id=a&custom_channel_id=b', 400],
    ['?custom_channel_id=a&force=true&force=true', 400],
    ['?custom_channel_id=a&force=evil', 400],
    ['?custom_channel_id=a&request_id=', 400],
    ['?custom_channel_id=%zz', 400],
    ['?custom_channel_id=%ff', 400],
    ['?custom_channel_id=%0d%0aX-Evil:1', 400],
    [`?custom_channel_id=${'a'.repeat(257)}`, 400],
    ['?custom_channel_id=a&bypass_tool_call_consent=true&x=1', 200],
    ['?force=true&request_id=r%2F1%26x&custom_channel_id=a%20b', 200],
  ])('the query %j is %d', async (query, status) => {
    await start(jsonAnswer('200 OK', {}));
    const answer = await suspend(pair, { query });
    if (status === 400) expectProblem(answer, 400, 'invalid_query');
    else expect(answer.status).toBe(200);
    const targets = pair.upstream.requests.map(({ requestLine }) => requestLine.split(' ')[1]?.split('?')[1]);
    const upstream = query.includes('request_id')
      ? 'custom_channel_id=a+b&request_id=r%2F1%26x&force=true'
      : 'custom_channel_id=a';
    expect(targets).toEqual(status === 200 ? [upstream] : []);
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

  test.each(['..', '%2e%2e', 'a%2Fb', '%00', 'a%5Cb'])('the bot %s is none', async (bot) => {
    await start('', { BOTS: '*/*' });
    const client = rawClient(pair.relay.port, rawSuspend(pair, [], SUSPEND_PATH.replace('helper', bot)));
    await client.waitFor('"requestId"');
    expect(parseAnswer(client.text()).status).toBe(404);
    expect(pair.upstream.requests).toEqual([]);
    client.socket.destroy();
  });
});
