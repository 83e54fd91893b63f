import { afterAll, beforeAll, describe, expect, test } from '@jest/globals';
import { OPERATION_GROUPS } from '../../../src/bots/bot.ts';
import { OPERATIONS } from '../../../src/relay/operations/operation-table.ts';
import { expectProblem } from '../../harness/clients/call.ts';
import { ask, channelIn, operationAt } from '../../harness/clients/operation-requests.ts';
import { until } from '../../harness/clock/until.ts';
import { CANARY } from '../../harness/relay/relay.ts';
import type { RelayAndUpstream } from '../../harness/relay/relay-and-upstream.ts';
import { startWithSandboxes } from '../../harness/service/launched-sandboxes.ts';
import type { RawRequest } from '../../harness/service/raw-upstream.ts';
import { plainAnswer } from '../../harness/service/raw-upstream.ts';

const METADATA = operationAt('GET channel/metadata');
const REMOVAL = operationAt('DELETE channel');
const FEEDBACK = operationAt('POST message/feedback');
const PROXIED = OPERATIONS.filter(({ carriedBy }) => carriedBy === 'proxy').map((operation) => ({
  operation,
  line: `${operation.method} ${operation.path}`,
  largest: operation.maxAnswerBytes ?? 65_536,
}));
const JSON_TYPE = 'Content-Type: application/json';
/** A key that can be written in another case. */
const MIXED_KEY = 'Mixed-Key-0123456789';

let pair: RelayAndUpstream;
/** What the bot service answers to the next requests. */
let reply: (request: RawRequest) => string | Buffer;
beforeAll(async () => {
  pair = await startWithSandboxes((socket, request) => void socket.write(reply(request)), {
    OPERATIONS: OPERATION_GROUPS.join(),
    UPSTREAM_API_KEYS: `${CANARY.key},${MIXED_KEY}`,
  });
});
afterAll(() => pair.close());

const answerWith = (body: string, status = '200 OK', headers = [JSON_TYPE]) => {
  reply = () => plainAnswer(status, headers, body);
};

describe('the JSON of an answer', () => {
  test('comes down byte for byte', async () => {
    const body = '\t{ "n" : 12345678901234567890, "e":1E400,"n":-0, "s":"\\u00e9\\/" ,"é":[{ }]}\r\n';
    answerWith(body);
    const answer = await ask(pair, METADATA);
    expect([answer.status, answer.body]).toEqual([200, body]);
    expect(answer.headers['content-length']).toBe(String(Buffer.byteLength(body)));
    expect(answer.headers['content-type']).toBe('application/json');
  });

  test('has no type that names a key, in whatever case', async () => {
    answerWith('{}', '200 OK', [`Content-Type: application/${MIXED_KEY}+json`]);
    const { headers } = await ask(pair, METADATA);
    expect(headers['content-type']).toBe('application/json');
  });

  test('names the conversation as the page does, in whole strings only, and hides keys', async () => {
    const escaped = `\\u0063${CANARY.key.slice(1)}`;
    let id = '';
    reply = (request) => {
      id = channelIn(request);
      const text = `{ "${id}" :"${id}", "t":"of ${id}","u":"\\u00${id.charCodeAt(0).toString(16)}${id.slice(1)}",
        "k":["${CANARY.key}","${escaped}!",1.0]}`;
      return plainAnswer('200 OK', [JSON_TYPE], text);
    };
    const answer = await ask(pair, METADATA, { channel: 'my "one"' });
    const own = JSON.stringify('my "one"');
    expect(answer.body).toBe(
      `{ ${own} :${own}, "t":"of ${id}","u":${own},
        "k":["[secret]","[secret]!",1.0]}`,
    );
    expect(answer.headers['content-length']).toBe(String(Buffer.byteLength(answer.body)));
  });

  test('of metadata may have 1 MiB', () => {
    expect(METADATA.maxAnswerBytes).toBe(1_048_576);
  });

  test.each(PROXIED.filter(({ operation }) => !operation.givesFile))(
    'of $line has at most $largest bytes',
    async ({ operation, largest }) => {
      const body = JSON.stringify('x'.repeat(largest - 2));
      answerWith(body);
      const answer = await ask(pair, operation);
      expect([answer.status, answer.body === body]).toEqual([200, true]);
      answerWith(`${body} `);
      expect((await ask(pair, operation)).status).toBe(502);
    },
  );

  test.each([
    ['no UTF-8', Buffer.from([0x22, 0xff, 0x22])],
    ['a lone surrogate in UTF-8', Buffer.from([0x22, 0xed, 0xa0, 0x80, 0x22])],
    ['a byte order mark', Buffer.from('\ufeff{}')],
    ['two values', Buffer.from('{} {}')],
    ['half a value', Buffer.from('{"a":')],
  ])('is not passed on if it is %s', async (_what, body) => {
    reply = () =>
      Buffer.concat([
        Buffer.from(`HTTP/1.1 200 OK\r\n${JSON_TYPE}\r\nContent-Length: ${body.length}\r\n\r\n`),
        body,
      ]);
    expect((await ask(pair, METADATA)).status).toBe(502);
  });
});

describe('an answer', () => {
  test('has only headers of the relay, its type and a trace id', async () => {
    answerWith('{}', '200 OK', [
      ...['Content-Type: application/vnd.x+json; charset=utf-8', 'X-Trace-Id: trace-1'],
      ...['ETag: "evil"', 'Last-Modified: Sun, 22 Nov 2026 10:00:00 GMT', 'Expires: evil', 'Age: 1'],
      ...['Cache-Control: public, max-age=9999', 'Vary: evil', 'Set-Cookie: evil=1', 'Location: /evil'],
      ...['Content-Disposition: evil', 'Access-Control-Allow-Origin: *', 'Digest: evil', 'Link: <evil>'],
      ...['Content-Security-Policy: evil', 'X-Content-Type-Options: evil', 'X-Request-Id: evil-request'],
      ...['RateLimit: evil', 'Refresh: 0;url=/evil', 'Clear-Site-Data: "*"', 'Service-Worker-Allowed: /'],
    ]);
    const { headers } = await ask(pair, METADATA);
    expect(JSON.stringify(headers)).not.toMatch(/evil|9999|\*/);
    for (const name of ['etag', 'last-modified', 'expires', 'age', 'link', 'location', 'digest'])
      expect(headers).not.toHaveProperty(name);
    expect(headers).toMatchObject({
      ...{ 'content-type': 'application/vnd.x+json', 'x-trace-id': 'trace-1' },
      ...{ 'cache-control': 'no-store', 'x-content-type-options': 'nosniff' },
      'content-security-policy': expect.stringContaining("default-src 'none'"),
    });
  });

  test('to a conditional request, or one for a range, is the whole answer', async () => {
    answerWith('{"n":1}');
    const answer = await ask(pair, METADATA, {
      headers: {
        ...{ 'If-None-Match': '*', 'If-Modified-Since': new Date().toUTCString(), 'If-Match': '"a"' },
        ...{ Range: 'bytes=0-1', 'If-Range': '"a"', 'Cache-Control': 'max-age=9' },
      },
    });
    expect([answer.status, answer.body]).toEqual([200, '{"n":1}']);
    const names = pair.upstream.requests.at(-1)?.headers.map(([name]) => name.toLowerCase());
    expect(names?.filter((name) => /^if-|range|cache/.test(name))).toEqual([]);
  });

  test.each(['200 OK', '204 No Content'])('%s without a body stays so', async (status) => {
    reply = () => `HTTP/1.1 ${status}\r\n${status.startsWith('204') ? '' : 'Content-Length: 0\r\n'}\r\n`;
    const answer = await ask(pair, REMOVAL);
    expect([answer.status, answer.body]).toEqual([Number(status.slice(0, 3)), '']);
    expect(answer.headers).not.toHaveProperty('content-type');
  });

  test('404 without JSON, as a proxy gives it, says nothing about the conversation', async () => {
    for (const { operation } of PROXIED) {
      answerWith('', '404 Not Found');
      expectProblem(await ask(pair, operation), 502, 'upstream_bad_response', {
        retryable: false,
        ...(operation.method !== 'GET' && operation.path !== 'message/suspend' && { maybeStarted: true }),
      });
    }
  });
});

describe('a refusal of the service', () => {
  test.each([400, 409, 413, 415, 422])('with %d keeps its status and its masked JSON', async (status) => {
    reply = (request) =>
      plainAnswer(
        `${status} No`,
        [JSON_TYPE, 'Retry-After: 7'],
        JSON.stringify({ error: { id: channelIn(request), [CANARY.key]: `\u0000${CANARY.key}` } }),
      );
    for (const { operation } of PROXIED) {
      const answer = await ask(pair, operation, { channel: 'mine' });
      expectProblem(answer, status, 'upstream_refused', {
        retryable: false,
        upstream: {
          error: { id: operation.channel === 'none' ? 'none' : 'mine', '[secret]': '\u0000[secret]' },
        },
      });
      expect(answer.headers).not.toHaveProperty('retry-after');
    }
  });

  test.each([
    ['no JSON', '<p>no'],
    ['half of a JSON', '{"a":'],
    ['long', JSON.stringify('x'.repeat(8192))],
    ['nested so deeply that it is long', `${'['.repeat(5000)}${']'.repeat(5000)}`],
  ])('that is %s has its status only', async (_what, body) => {
    answerWith(body, '409 No');
    expectProblem(await ask(pair, REMOVAL), 409, 'upstream_refused', { retryable: false });
  });

  test('that is nested deeply is passed on', async () => {
    const body = `${'['.repeat(4000)}${']'.repeat(4000)}`;
    answerWith(body, '409 No');
    expect((await ask(pair, REMOVAL)).body).toContain(`"upstream":${body}`);
  });

  test.each([
    ...[
      '402 Pay',
      '405 No',
      '406 No',
      '410 Gone',
      '416 No',
      '451 No',
      '418 Tea',
      '304 Same',
      '307 Elsewhere',
    ],
    ...['500 Oh', '501 No', '503 Busy', '504 Late'],
  ])('with %s is no refusal, but an answer that cannot be passed on', async (status) => {
    const headers = [JSON_TYPE, 'Retry-After: 7', 'Location: /evil'];
    answerWith(status.startsWith('304') ? '' : '{"a":1}', status, headers);
    const before = pair.upstream.requests.length;
    const answer = await ask(pair, METADATA);
    expectProblem(answer, 502, 'upstream_bad_response', { retryable: false });
    expect(answer.headers).not.toHaveProperty('retry-after');
    expect(pair.upstream.requests).toHaveLength(before + 1);
  });

  test('with 429 keeps its Retry-After', async () => {
    answerWith('', '429 Busy', ['Retry-After: 7']);
    const answer = await ask(pair, FEEDBACK);
    expectProblem(answer, 429, 'upstream_rate_limited', { retryable: 'new message' });
    expect(answer.headers['retry-after']).toBe('7');
  });

  test.each([
    ['in an encoding', plainAnswer('200 OK', [JSON_TYPE, 'Content-Encoding: gzip'], '{}')],
    ['HTML', plainAnswer('200 OK', ['Content-Type: text/html'], '<p>hello')],
    ['a 404 page', plainAnswer('404 No', ['Content-Type: text/html'], '<p>no')],
    ['JSON by name only', plainAnswer('200 OK', [JSON_TYPE], '<p>hello')],
    ['nested too deeply', plainAnswer('200 OK', [JSON_TYPE], '['.repeat(60_000))],
    ['huge', `HTTP/1.1 200 OK\r\nContent-Length: 9000000\r\n\r\n${'x'.repeat(200_000)}`],
    ['another protocol', 'HTTP/1.1 101 No\r\nConnection: upgrade\r\nUpgrade: evil\r\n\r\n'],
    ['no HTTP', 'hello\r\n\r\n'],
    ['no chunked coding', 'HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nevil\r\n\r\n'],
  ])('is no answer if it is %s, and its connection is not kept', async (what, bytes) => {
    reply = () => bytes;
    expect((await ask(pair, REMOVAL)).status).toBe(502);
    if (what === 'huge') await until(() => pair.upstream.sockets.at(-1)?.destroyed === true);
  });
});
