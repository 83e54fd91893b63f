import { afterAll, afterEach, beforeAll, describe, expect, test } from '@jest/globals';
import { OPERATION_GROUPS } from '../../../src/bots/bot.ts';
import { expectProblem } from '../../harness/clients/call.ts';
import { ask, channelIn, operationAt, operationRequest } from '../../harness/clients/operation-requests.ts';
import { rawClient } from '../../harness/clients/raw-client.ts';
import { jsonAnswer, rawSuspend, SUSPEND_PATH, suspend } from '../../harness/clients/suspend.ts';
import { until } from '../../harness/clock/until.ts';
import { CANARY, startRelay } from '../../harness/relay/relay.ts';
import { type RelayAndUpstream, startRelayAndUpstream } from '../../harness/relay/relay-and-upstream.ts';
import { startWithSandboxes } from '../../harness/service/launched-sandboxes.ts';
import { plainAnswer, type RawRequest } from '../../harness/service/raw-upstream.ts';

const METADATA = operationAt('GET channel/metadata');
const REMOVAL = operationAt('DELETE channel');
const FEEDBACK = operationAt('POST message/feedback');
const JSON_TYPE = 'Content-Type: application/json';
/** A key that can be written in another case. */
const MIXED_KEY = 'Mixed-Key-0123456789';
const UPSTREAM_ID = /^[0-9a-f]{64}$/;

let pair: RelayAndUpstream;
/** Conversations that nobody owns, so that their ids go upstream as they are. */
let shared: RelayAndUpstream;
/** What the bot service answers to the next requests. */
let reply: (request: RawRequest) => string | Buffer;
beforeAll(async () => {
  pair = await startWithSandboxes((socket, request) => void socket.write(reply(request)), {
    OPERATIONS: OPERATION_GROUPS.join(),
    UPSTREAM_API_KEYS: `${CANARY.key},${MIXED_KEY}`,
  });
  shared = await startRelayAndUpstream((socket, request) => void socket.write(reply(request)), {
    ...{ CHANNELS: 'shared', USER_HEADER: 'X-User-Id' },
  });
});
afterAll(async () => {
  await pair.close();
  await shared.close();
});

const answerWith = (body: string, status = '200 OK', headers = [JSON_TYPE]) => {
  reply = () => plainAnswer(status, headers, body);
};
const newest = ({ upstream }: RelayAndUpstream) => upstream.requests.at(-1) as RawRequest;
/** Expects that `run` sends nothing to the service. */
async function sendsNothing({ upstream }: RelayAndUpstream, run: () => Promise<unknown>): Promise<void> {
  const before = upstream.requests.length;
  await run();
  expect(upstream.requests).toHaveLength(before);
}

describe('the JSON of an answer', () => {
  test('comes down byte for byte', async () => {
    const body = '\t{ "n" : 12345678901234567890, "e":1E400,"n":-0, "s":"\\u00e9\\/" ,"é":[{ }]}\r\n';
    answerWith(body);
    const answer = await ask(pair, METADATA);
    expect([answer.status, answer.body]).toEqual([200, body]);
    expect(answer.headers['content-length']).toBe(String(Buffer.byteLength(body)));
    expect(answer.headers['content-type']).toBe('application/json');
  });

  test('names the conversation as the page does, in whole strings only, and hides keys', async () => {
    const escaped = `\\u0063${CANARY.key.slice(1)}`;
    let id = '';
    reply = (request) => {
      id = channelIn(request);
      const text = `{ "${id}" :"${id}", "t":"of ${id}","u":"\\u00${id.charCodeAt(0).toString(16)}${id.slice(1)}",
        "${CANARY.key}":["${CANARY.key}","${escaped}!",1.0]}`;
      return plainAnswer('200 OK', [JSON_TYPE], text);
    };
    const answer = await ask(pair, METADATA, { channel: 'my "one"' });
    const own = JSON.stringify('my "one"');
    expect(answer.body).toBe(
      `{ ${own} :${own}, "t":"of ${id}","u":${own},
        "[secret]":["[secret]","[secret]!",1.0]}`,
    );
    expect(answer.headers['content-length']).toBe(String(Buffer.byteLength(answer.body)));
  });

  test.each([
    [METADATA, 1_048_576],
    [operationAt('GET metadata'), 1_048_576],
    [operationAt('GET sandbox/:sandbox/fs/list'), 1_048_576],
    [FEEDBACK, 65_536],
  ])('of $path has at most %d bytes', async (operation, largest) => {
    const body = JSON.stringify('x'.repeat(largest - 2));
    answerWith(body);
    const answer = await ask(pair, operation);
    expect([answer.status, answer.body === body]).toEqual([200, true]);
    answerWith(`${body} `);
    expect((await ask(pair, operation)).status).toBe(502);
  });
});

describe('an answer', () => {
  test('has only headers of the relay, its type and a trace id, and none with a key', async () => {
    answerWith('{}', '200 OK', [
      ...['Content-Type: application/vnd.x+json; charset=utf-8', 'X-Trace-Id: trace-1'],
      ...['ETag: "evil"', 'Last-Modified: Sun, 22 Nov 2026 10:00:00 GMT', 'Expires: evil', 'Age: 1'],
      ...['Cache-Control: public, max-age=9999', 'Vary: evil', 'Set-Cookie: evil=1', 'Location: /evil'],
      ...['Content-Disposition: evil', 'Access-Control-Allow-Origin: *', 'Link: <evil>', 'Server: evil'],
      ...['Content-Security-Policy: evil', 'X-Content-Type-Options: evil', 'X-Request-Id: evil-request'],
      ...['RateLimit: evil', 'Refresh: 0;url=/evil', 'Clear-Site-Data: "*"', 'Service-Worker-Allowed: /'],
    ]);
    const { headers } = await ask(pair, METADATA);
    expect(JSON.stringify(headers)).not.toMatch(/evil|9999|\*/);
    for (const name of ['etag', 'last-modified', 'expires', 'age', 'link', 'location', 'vary'])
      expect(headers).not.toHaveProperty(name);
    expect(headers).toMatchObject({
      ...{ 'content-type': 'application/vnd.x+json', 'x-trace-id': 'trace-1' },
      ...{ 'cache-control': 'no-store', 'x-content-type-options': 'nosniff' },
      'content-security-policy': expect.stringContaining("default-src 'none'"),
    });
    answerWith('{}', '200 OK', [`Content-Type: application/${MIXED_KEY}+json`, `X-Trace-Id: ${CANARY.key}`]);
    const masked = await ask(pair, METADATA);
    expect(masked.headers['content-type']).toBe('application/json');
    expect(masked.headers).not.toHaveProperty('x-trace-id');
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
    const names = newest(pair).headers.map(([name]) => name.toLowerCase());
    expect(names.filter((name) => /^if-|range|cache/.test(name))).toEqual([]);
  });

  test.each(['200 OK', '204 No Content'])('%s without a body stays so', async (status) => {
    reply = () => `HTTP/1.1 ${status}\r\n${status.startsWith('204') ? '' : 'Content-Length: 0\r\n'}\r\n`;
    const answer = await ask(pair, REMOVAL);
    expect([answer.status, answer.body]).toEqual([Number(status.slice(0, 3)), '']);
    expect(answer.headers).not.toHaveProperty('content-type');
  });

  const ofBytes = (bytes: Buffer) =>
    Buffer.concat([
      Buffer.from(`HTTP/1.1 200 OK\r\n${JSON_TYPE}\r\nContent-Length: ${bytes.length}\r\n\r\n`),
      bytes,
    ]);
  test.each([
    ['no UTF-8', ofBytes(Buffer.from([0x22, 0xff, 0x22]))],
    ['a lone surrogate in UTF-8', ofBytes(Buffer.from([0x22, 0xed, 0xa0, 0x80, 0x22]))],
    ['a byte order mark', ofBytes(Buffer.from('\ufeff{}'))],
    ['two values', ofBytes(Buffer.from('{} {}'))],
    ['half a value', ofBytes(Buffer.from('{"a":'))],
    ['in an encoding', plainAnswer('200 OK', [JSON_TYPE, 'Content-Encoding: gzip'], '{}')],
    ['HTML', plainAnswer('200 OK', ['Content-Type: text/html'], '<p>hello')],
    ['a 404 alone, as a proxy gives it', plainAnswer('404 Not Found', [JSON_TYPE])],
    ['nested too deeply', plainAnswer('200 OK', [JSON_TYPE], '['.repeat(60_000))],
    ['huge', `HTTP/1.1 200 OK\r\nContent-Length: 9000000\r\n\r\n${'x'.repeat(200_000)}`],
    ['another protocol', 'HTTP/1.1 101 No\r\nConnection: upgrade\r\nUpgrade: evil\r\n\r\n'],
    ['no HTTP', 'hello\r\n\r\n'],
    ['no chunked coding', 'HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nevil\r\n\r\n'],
    ...['402 Pay', '304 Same', '307 Elsewhere', '500 Oh', '503 Busy'].map((status): [string, string] => [
      status,
      plainAnswer(
        status,
        [JSON_TYPE, 'Retry-After: 7', 'Location: /evil'],
        status.startsWith('304') ? '' : '{"a":1}',
      ),
    ]),
  ])('that is %s is not passed on, and the request is not sent again', async (what, bytes) => {
    reply = () => bytes;
    const before = pair.upstream.requests.length;
    const answer = await ask(pair, REMOVAL);
    const code = what === 'another protocol' ? 'upstream_unreachable' : 'upstream_bad_response';
    expectProblem(answer, 502, code, { maybeStarted: true, retryable: false });
    expect(answer.headers).not.toHaveProperty('retry-after');
    expect(pair.upstream.requests).toHaveLength(before + 1);
    if (what === 'huge') await until(() => pair.upstream.sockets.at(-1)?.destroyed === true);
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
    const answer = await ask(pair, REMOVAL, { channel: 'mine' });
    expectProblem(answer, status, 'upstream_refused', {
      retryable: false,
      upstream: { error: { id: 'mine', '[secret]': '\u0000[secret]' } },
    });
    expect(answer.headers).not.toHaveProperty('retry-after');
  });

  test('that is no JSON, or long, has its status only; one that is nested deeply is passed on', async () => {
    const nested = (depth: number) => '['.repeat(depth) + ']'.repeat(depth);
    for (const body of ['<p>no', '{"a":', JSON.stringify('x'.repeat(8192)), nested(5000)]) {
      answerWith(body, '409 No');
      expectProblem(await ask(pair, REMOVAL), 409, 'upstream_refused', { retryable: false });
    }
    answerWith(nested(4000), '409 No');
    expect((await ask(pair, REMOVAL)).body).toContain(`"upstream":${nested(4000)}`);
  });

  test('with 429 keeps its Retry-After, and has done nothing', async () => {
    answerWith('', '429 Busy', ['Retry-After: 7']);
    const answer = await ask(pair, FEEDBACK);
    expectProblem(answer, 429, 'upstream_rate_limited', { retryable: 'new message' });
    expect(answer.headers['retry-after']).toBe('7');
  });
});

describe('the JSON body of an operation', () => {
  const feedback = (body: string, at = pair) => ask(at, FEEDBACK, { body });

  test('goes upstream with another id, and every other byte stays', async () => {
    answerWith('{}');
    const [before, after] = [
      '{ "n":1e400,\t"customChannelId" : ',
      ' , "x":"\\u0061/\\/","e":[{"é":"é"}],"x":0 }\n',
    ];
    expect((await feedback(`${before}"\\u0063\\u0031"${after}`)).status).toBe(200);
    const { body, all } = newest(pair);
    const id = String(body).slice(before.length, -after.length);
    expect(JSON.parse(id)).toMatch(UPSTREAM_ID);
    expect(String(body)).toBe(before + id + after);
    expect(all('content-length')).toEqual([String(body.length)]);
    expect([all('content-type'), all('transfer-encoding')]).toEqual([['application/json'], []]);
  });

  test('goes upstream unchanged with CHANNELS=shared', async () => {
    answerWith('{}');
    const body = '\n{"customChannelId":"c1" , "verdict":12345678901234567890}';
    expect((await feedback(body, shared)).status).toBe(200);
    expect(String(newest(shared).body)).toBe(body);
  });

  test('may come in chunks, and after a 100 (Continue)', async () => {
    answerWith('{"n":1}');
    const { method, path, body = '' } = operationRequest(FEEDBACK);
    const head = [
      `${method} ${path} HTTP/1.1`,
      ...['Host: app.example.com', `Cookie: ${pair.cookie}`, JSON_TYPE],
      ...['Expect: 100-continue', 'Transfer-Encoding: chunked'],
    ];
    const client = rawClient(pair.relay.port, `${head.join('\r\n')}\r\n\r\n`);
    await client.waitFor('100 Continue');
    for (const byte of String(body)) client.socket.write(`1\r\n${byte}\r\n`);
    client.socket.write('0\r\n\r\n');
    await client.waitFor('{"n":1}');
    const request = newest(pair);
    expect(channelIn(request)).toMatch(UPSTREAM_ID);
    expect([...request.all('expect'), ...request.all('transfer-encoding')]).toEqual([]);
    client.socket.destroy();
  });

  test.each([
    ['an array', '[{"customChannelId":"c1"}]', 'invalid_conversation'],
    ['an object with two names', '{"customChannelId":"c1","custom_channel_id":"c2"}', 'invalid_conversation'],
    ['an object with null as its id', '{"customChannelId":null}', 'invalid_conversation'],
    ['no whole JSON', '{"customChannelId":"c1"', 'invalid_json'],
  ] as const)('is not sent if it is %s', async (_what, body, code) => {
    await sendsNothing(pair, async () => expectProblem(await feedback(body), 400, code));
  });

  test('is not sent if the query names another conversation', async () => {
    answerWith('{}');
    const request = (query: string) => ask(pair, { ...FEEDBACK, path: `message/feedback${query}` });
    await sendsNothing(pair, async () => {
      expectProblem(await request('?custom_channel_id=c2'), 400, 'invalid_conversation');
      expectProblem(await request('?customChannelId=c1'), 400, 'invalid_conversation');
    });
    expect((await request('?custom_channel_id=c1&bypass_tool_call_consent=true')).status).toBe(200);
    expect(newest(pair).requestLine).toBe('POST /ns/acme/bot-provider/helper/message/feedback HTTP/1.1');
  });

  describe('with a service of its own', () => {
    let own: RelayAndUpstream;
    afterEach(() => own.close());

    test('is sent again with each next key after a refused one', async () => {
      const keys = Array.from({ length: 8 }, (_, n) => `key-of-this-test-${n}`);
      own = await startRelayAndUpstream(
        (socket, { all }) =>
          void socket.write(
            all('x-api-key')[0] === keys.at(-1) ? jsonAnswer('200 OK', { n: 1 }) : plainAnswer('401 No', []),
          ),
        { UPSTREAM_API_KEYS: keys.join(',') },
      );
      const body = '{"customChannelId":"c1"}'.padEnd(65_536);
      const answer = await feedback(body, own);
      expect([answer.status, answer.body]).toEqual([200, '{"n":1}']);
      const { requests } = own.upstream;
      expect(requests.map(({ all }) => all('x-api-key')[0])).toEqual(keys);
      expect(new Set(requests.map((request) => String(request.body))).size).toBe(1);
      // The upstream id has 62 characters more than `c1`.
      expect(requests[0]?.body.length).toBe(65_536 + 62);
    });

    test('may have been taken when the answer is lost, unless its operation has the same effect twice', async () => {
      own = await startRelayAndUpstream((socket) => void socket.destroy());
      expectProblem(await ask(own, FEEDBACK), 502, 'upstream_unreachable', {
        ...{ maybeStarted: true, retryable: false },
      });
      expectProblem(await ask(own, operationAt('POST message/suspend')), 502, 'upstream_unreachable', {
        retryable: 'new message',
      });
      expect(own.upstream.requests).toHaveLength(2);
    });
  });
});

describe('a request without a body, such as a suspend,', () => {
  test('goes below the path of UPSTREAM_BASE_URL', async () => {
    answerWith('{}');
    const below = await startRelay(`${shared.upstream.url}/v1/`, { BOTS: '*/*' });
    const at = { ...shared, relay: below, cookie: await below.signIn() };
    expect((await suspend(at, { path: SUSPEND_PATH.replace('acme', 'a%20b') })).status).toBe(200);
    expect(newest(shared).requestLine).toMatch(
      /^POST \/v1\/generic\/ns\/a%20b\/bot-provider\/helper\/message\/suspend\?/,
    );
    await below.close();
  });

  test('sends only those headers of the client upstream that the service needs', async () => {
    answerWith('{}');
    const evil = [
      ...['Authorization: Bearer evil', 'X-API-KEY: evil-1', 'x-Api-Key: evil-2', 'X_API_KEY: evil-3'],
      ...['Expect: 100-continue', 'Connection: x-api-key, close', 'Keep-Alive: evil', 'TE: trailers'],
      ...['X-Forwarded-For: 6.6.6.6', 'Via: 1.1 evil', 'X-User-Id: evil', 'Accept-Encoding: evil'],
      ...['X-HTTP-Method-Override: evil', 'Content-Type: evil/evil', 'Referer: http://evil.example'],
      ...['X-ASGARD-USER-IDENTITY-HINT: evil', 'X-Asgard-Webhook-Token: evil', 'X-Request-Id: request-0001'],
      'traceparent: 00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01',
    ];
    await rawClient(shared.relay.port, rawSuspend(shared, evil)).waitFor('{}');
    const headers = newest(shared).headers.map(([name, value]) => [name.toLowerCase(), value]);
    expect(Object.fromEntries(headers)).toEqual({
      host: new URL(shared.upstream.url).host,
      ...{ accept: 'application/json', 'accept-encoding': 'identity', connection: 'keep-alive' },
      ...{ 'content-length': '0', 'x-api-key': CANARY.key },
      ...{ 'x-request-id': 'request-0001', 'x-user-id': 'ada' },
      traceparent: '00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01',
    });
    expect(headers).toHaveLength(9);
    expect(newest(shared).body).toHaveLength(0);
  });

  test.each([
    ['?custom_channel_id=a&custom_channel_id=b', 'invalid_conversation'],
    ['?custom_channel_id=a&customChannelId=b', 'invalid_conversation'],
    [`?custom_channel_id=${'a'.repeat(257)}`, 'invalid_conversation'],
    ['?custom_channel_id=a&force=true&force=true', 'invalid_query'],
    ['?custom_channel_id=a&force=evil', 'invalid_query'],
    ['?custom_channel_id=a&request_id=', 'invalid_query'],
    ['?custom_channel_id=%ff', 'invalid_query'],
  ] as const)('is refused with the query %j', async (query, code) => {
    await sendsNothing(shared, async () => expectProblem(await suspend(shared, { query }), 400, code));
  });

  test.each([
    ['?custom_channel_id=a&bypass_tool_call_consent=true&x=1', 'custom_channel_id=a'],
    ['?custom_channel_id=%0d%0aX-Evil:1', 'custom_channel_id=%0D%0AX-Evil%3A1'],
    [
      '?force=true&request_id=r%2F1%26x&custom_channel_id=a%20b',
      'custom_channel_id=a+b&request_id=r%2F1%26x&force=true',
    ],
  ])('with the query %j goes upstream with %s', async (query, upstream) => {
    answerWith('{}');
    expect((await suspend(shared, { query })).status).toBe(200);
    expect(newest(shared).requestLine).toBe(`POST ${SUSPEND_PATH}?${upstream} HTTP/1.1`);
  });

  test('has its route pattern, its bot and its user in the log, and is counted', async () => {
    answerWith('{}');
    const headers = { 'X-Request-Id': 'logged-0001' };
    await suspend(shared, { query: '?custom_channel_id=shown-nowhere', headers });
    expect(await shared.relay.logLine(({ requestId }) => requestId === 'logged-0001')).toMatchObject({
      route: '/generic/ns/:namespace/bot-provider/:botProviderName/message/suspend',
      ...{ method: 'POST', status: 200, outcome: 'ok', upstreamStatus: 200 },
      ...{ userId: 'ada', bot: 'acme/helper', slotWaitMs: expect.any(Number), bytes: 2 },
    });
    expect(JSON.stringify(shared.relay.logs)).not.toContain('shown-nowhere');
    const metrics = await shared.relay.metricsText();
    expect(metrics).toMatch(
      /bot_relay_requests_total\{route="[^"]*message\/suspend",.*status="200",code="ok"\} \d/,
    );
    expect(metrics).toMatch(/bot_relay_upstream_responses_total\{key="[0-9a-f]{8}",outcome="2xx"\} \d/);
  });
});
