import { afterEach, describe, expect, test } from '@jest/globals';
import { expectProblem } from '../../harness/clients/call.ts';
import { ask, channelIn, operationAt, operationRequest } from '../../harness/clients/operation-requests.ts';
import { rawClient } from '../../harness/clients/raw-client.ts';
import { jsonAnswer } from '../../harness/clients/suspend.ts';
import { type RelayAndUpstream, startRelayAndUpstream } from '../../harness/relay/relay-and-upstream.ts';
import { plainAnswer } from '../../harness/service/raw-upstream.ts';

const FEEDBACK = operationAt('POST message/feedback');
const LARGEST = FEEDBACK.maxBodyBytes ?? 0;
const UPSTREAM_ID = /^[0-9a-f]{64}$/;

let pair: RelayAndUpstream;
afterEach(() => pair.close());

const start = async (answer: string, environment: Record<string, string> = {}) => {
  pair = await startRelayAndUpstream((socket) => void socket.write(answer), environment);
};
const feedback = (body: string | Buffer, headers: Record<string, string> = {}) =>
  ask(pair, FEEDBACK, { body, headers });
/** A body of `bytes` bytes. */
const bodyOf = (bytes: number) => {
  const around = JSON.stringify({ customChannelId: 'c1', comment: '' });
  return JSON.stringify({ customChannelId: 'c1', comment: 'x'.repeat(bytes - around.length) });
};

describe('the JSON body of an operation', () => {
  test('goes upstream with another id, and every other byte stays', async () => {
    await start(jsonAnswer('200 OK', {}));
    const [before, after] = [
      '{ "n":1e400,\t"customChannelId" : ',
      ' , "x":"\\u0061/\\/","e":[{"é":"é"}],"x":0 }\n',
    ];
    expect((await feedback(`${before}"\\u0063\\u0031"${after}`)).status).toBe(200);
    const [request] = pair.upstream.requests;
    const id = String(request?.body).slice(before.length, -after.length);
    expect(JSON.parse(id)).toMatch(UPSTREAM_ID);
    expect(String(request?.body)).toBe(before + id + after);
    expect(request?.all('content-length')).toEqual([String(request?.body.length)]);
    expect(request?.all('content-type')).toEqual(['application/json']);
    expect(request?.all('transfer-encoding')).toEqual([]);
    expect(request?.requestLine).toBe('POST /ns/acme/bot-provider/helper/message/feedback HTTP/1.1');
  });

  test('goes upstream unchanged with CHANNELS=shared', async () => {
    await start(jsonAnswer('200 OK', {}), { CHANNELS: 'shared' });
    const body = '\n{"customChannelId":"c1" , "verdict":12345678901234567890}';
    expect((await feedback(body)).status).toBe(200);
    expect(String(pair.upstream.requests[0]?.body)).toBe(body);
  });

  test('is sent again with each next key after a refused one', async () => {
    const keys = Array.from({ length: 8 }, (_, n) => `key-of-this-test-${n}`);
    pair = await startRelayAndUpstream(
      (socket, { all }) =>
        void socket.write(
          all('x-api-key')[0] === keys.at(-1) ? jsonAnswer('200 OK', { n: 1 }) : plainAnswer('401 No', []),
        ),
      { UPSTREAM_API_KEYS: keys.join(',') },
    );
    const answer = await feedback(bodyOf(LARGEST));
    expect([answer.status, answer.body]).toEqual([200, '{"n":1}']);
    const { requests } = pair.upstream;
    expect(requests.map(({ all }) => all('x-api-key')[0])).toEqual(keys);
    expect(new Set(requests.map(({ body }) => String(body))).size).toBe(1);
    // The upstream id has 62 characters more than `c1`.
    expect(requests[0]?.body.length).toBe(65_536 + 62);
  });

  test('may come in chunks, and after a 100 (Continue)', async () => {
    await start(jsonAnswer('200 OK', { n: 1 }));
    const { method, path, body = '' } = operationRequest(FEEDBACK);
    const head = [
      `${method} ${path} HTTP/1.1`,
      ...['Host: app.example.com', `Cookie: ${pair.cookie}`, 'Content-Type: application/json'],
      ...['Expect: 100-continue', 'Transfer-Encoding: chunked'],
    ];
    const client = rawClient(pair.relay.port, `${head.join('\r\n')}\r\n\r\n`);
    await client.waitFor('100 Continue');
    for (const byte of String(body)) client.socket.write(`1\r\n${byte}\r\n`);
    client.socket.write('0\r\n\r\n');
    await client.waitFor('{"n":1}');
    const [request] = pair.upstream.requests;
    expect(request && channelIn(request)).toMatch(UPSTREAM_ID);
    expect([...(request?.all('expect') ?? []), ...(request?.all('transfer-encoding') ?? [])]).toEqual([]);
    client.socket.destroy();
  });

  test.each([
    ['an array', '[{"customChannelId":"c1"}]', 'invalid_conversation'],
    ['an object with two names', '{"customChannelId":"c1","custom_channel_id":"c2"}', 'invalid_conversation'],
    ['an object with null as its id', '{"customChannelId":null}', 'invalid_conversation'],
    ['no whole JSON', '{"customChannelId":"c1"', 'invalid_json'],
    ['empty', '', 'invalid_json'],
  ] as const)('is not sent if it is %s', async (_what, body, code) => {
    await start(jsonAnswer('200 OK', {}));
    expectProblem(await feedback(body), 400, code);
    expect(pair.upstream.sockets).toEqual([]);
  });

  test('is not sent if the query names another conversation, in any mode', async () => {
    await start(jsonAnswer('200 OK', {}), { CHANNELS: 'shared' });
    const { path, headers } = operationRequest(FEEDBACK);
    const request = (query: string) =>
      ask(pair, { ...FEEDBACK, path: `message/feedback${query}` }, { headers });
    expectProblem(await request('?custom_channel_id=c2'), 400, 'invalid_conversation');
    expectProblem(await request('?customChannelId=c1'), 400, 'invalid_conversation');
    expect(pair.upstream.sockets).toEqual([]);
    expect((await request('?custom_channel_id=c1&bypass_tool_call_consent=true')).status).toBe(200);
    expect(pair.upstream.requests[0]?.requestLine).toBe(`POST ${path} HTTP/1.1`);
  });

  test.each(['text/plain', 'application/x-www-form-urlencoded', 'multipart/form-data; boundary=x', ''])(
    'is not taken as %j, which a page can send without a preflight',
    async (type) => {
      await start(jsonAnswer('200 OK', {}));
      const answer = await feedback('{"customChannelId":"c1"}', { 'Content-Type': type });
      expectProblem(answer, 415, 'unsupported_media_type');
      expect(pair.upstream.sockets).toEqual([]);
    },
  );
});

describe('the problem of a body that has left', () => {
  test('says maybeStarted when the answer is lost, unless the service refused', async () => {
    const answers = [plainAnswer('500 Oh', []), plainAnswer('429 Busy', []), plainAnswer('400 No', [])];
    pair = await startRelayAndUpstream((socket) => {
      const answer = answers.shift();
      if (answer) socket.write(answer);
      else socket.destroy();
    });
    const ends = async () => JSON.parse((await ask(pair, FEEDBACK)).body) as Record<string, unknown>;
    expect(await ends()).toMatchObject({ code: 'upstream_bad_response', maybeStarted: true });
    const [busy, refused, broken] = [await ends(), await ends(), await ends()];
    expect(busy).toMatchObject({ code: 'upstream_rate_limited', retryable: 'new message' });
    expect(refused).toMatchObject({ code: 'upstream_refused' });
    for (const each of [busy, refused]) expect(each).not.toHaveProperty('maybeStarted');
    expect(broken).toMatchObject({ code: 'upstream_unreachable', maybeStarted: true, retryable: false });
  });

  test('does not count for an operation that has the same effect twice', async () => {
    pair = await startRelayAndUpstream((socket) => void socket.destroy());
    expectProblem(await ask(pair, operationAt('POST message/suspend')), 502, 'upstream_unreachable', {
      retryable: 'new message',
    });
    expect(pair.upstream.requests).toHaveLength(1);
  });
});
