import { afterAll, beforeAll, describe, expect, test } from '@jest/globals';
import { operationRequestBuilder } from '../../../src/relay/operations/operation-request.ts';
import { OPERATIONS, type Operation } from '../../../src/relay/operations/operation-table.ts';
import { expectProblem, parseAnswer } from '../../harness/clients/call.ts';
import { rawClient } from '../../harness/clients/raw-client.ts';
import { CHANNEL, jsonAnswer, rawSuspend, SUSPEND_PATH, suspend } from '../../harness/clients/suspend.ts';
import { CANARY } from '../../harness/relay/relay.ts';
import { type RelayAndUpstream, startRelayAndUpstream } from '../../harness/relay/relay-and-upstream.ts';
import { plainAnswer } from '../../harness/service/raw-upstream.ts';

let pair: RelayAndUpstream;
/** What the service answers to the next suspend. */
let answer: string | Buffer;
beforeAll(async () => {
  pair = await startRelayAndUpstream((socket) => void socket.write(answer), {
    ...{ CHANNELS: 'shared', BASE_PATH: '/relay', BOTS: '*/*', USER_HEADER: 'X-User-Id', METRICS_PORT: '9' },
  });
});
afterAll(() => pair.close());
const PATH = `/relay${SUSPEND_PATH}`;
const ask = (options: Parameters<typeof suspend>[1] = {}) => suspend(pair, { path: PATH, ...options });
const newest = () => pair.upstream.requests.at(-1);
/** Expects that `run` sends nothing to the service. */
async function sendsNothing(run: () => Promise<unknown>): Promise<void> {
  const before = pair.upstream.requests.length;
  await run();
  expect(pair.upstream.requests).toHaveLength(before);
}

describe('a suspend', () => {
  test.each(['/ns', '/generic/ns'])(
    'in the shape %s goes upstream without BASE_PATH and without a body',
    async (shape) => {
      answer = jsonAnswer('200 OK', { suspended: true });
      const path = SUSPEND_PATH.replace('/generic/ns', shape);
      const answered = await ask({ path: `/relay${path}` });
      expect([answered.status, answered.body]).toEqual([200, '{"suspended":true}']);
      expect(answered.headers['content-type']).toBe('application/json');
      expect(newest()?.requestLine).toBe(`POST ${path}${CHANNEL} HTTP/1.1`);
      expect([newest()?.all('content-length'), newest()?.body.length]).toEqual([['0'], 0]);
      await sendsNothing(async () => expectProblem(await ask({ path }), 404, 'not_found'));
    },
  );

  test('goes below the path of UPSTREAM_BASE_URL', () => {
    const baseUrl = new URL('https://bots.example/v1/');
    const accepted = {
      operation: OPERATIONS.find(({ path }) => path === 'message/suspend') as Operation,
      shape: '/ns' as const,
      bot: { namespace: 'a b', botProviderName: 'c' },
      query: new URLSearchParams('x=1'),
      ...{ headers: {}, requestId: 'r', userId: 'u', body: undefined },
    };
    const { path } = operationRequestBuilder({ baseUrl, userHeader: undefined })(accepted);
    expect(path).toBe('/v1/ns/a%20b/bot-provider/c/message/suspend?x=1');
  });

  test.each([
    ['204 alone', 'HTTP/1.1 204 No Content\r\n\r\n', 204, ''],
    [
      '404 with JSON: there is nothing to stop',
      jsonAnswer('404 No', { error: 'NO_RUN' }),
      404,
      '{"error":"NO_RUN"}',
    ],
  ])('is answered %s', async (_what, bytes, status, body) => {
    answer = bytes;
    const answered = await ask();
    expect([answered.status, answered.body, answered.headers['cache-control']]).toEqual([
      status,
      body,
      'no-store',
    ]);
  });

  test('passes only two headers of the service on, and no key', async () => {
    const escaped = `\\u0063${CANARY.key.slice(1)}`;
    const body = `{"a":"${escaped}","a":1,"${CANARY.key}":["${escaped}"]}`;
    const headers = ['Content-Type: application/json; charset=utf-8', `X-Trace-Id: ${CANARY.key}`];
    answer = plainAnswer('200 OK', [...headers, 'Set-Cookie: evil=1', 'Server: evil', 'X-Evil: 1'], body);
    const answered = await ask();
    expect([answered.status, answered.body]).toEqual([200, '{"a":"[secret]","a":1,"[secret]":["[secret]"]}']);
    expect(JSON.stringify(answered.headers)).not.toMatch(/evil|trace/);
    expect(answered.headers['content-type']).toBe('application/json');
  });

  test('sends only those headers of the client upstream that the service needs', async () => {
    answer = jsonAnswer('200 OK', {});
    const evil = [
      ...['Authorization: Bearer evil', 'X-API-KEY: evil-1', 'x-Api-Key: evil-2', 'X_API_KEY: evil-3'],
      ...['Expect: 100-continue', 'Connection: x-api-key, close', 'Keep-Alive: evil', 'TE: trailers'],
      ...['X-Forwarded-For: 6.6.6.6', 'Via: 1.1 evil', 'X-User-Id: evil', 'Accept-Encoding: evil'],
      ...['X-HTTP-Method-Override: evil', 'Content-Type: evil/evil', 'Referer: http://evil.example'],
      ...['X-ASGARD-USER-IDENTITY-HINT: evil', 'X-Asgard-Webhook-Token: evil', 'X-Request-Id: request-0001'],
      'traceparent: 00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01',
    ];
    await rawClient(pair.relay.port, rawSuspend(pair, evil, PATH + CHANNEL)).waitFor('{}');
    const headers = newest()?.headers.map(([name, value]) => [name.toLowerCase(), value]) ?? [];
    expect(Object.fromEntries(headers)).toEqual({
      host: new URL(pair.upstream.url).host,
      ...{ accept: 'application/json', 'accept-encoding': 'identity', connection: 'keep-alive' },
      ...{
        'content-length': '0',
        'x-api-key': CANARY.key,
        'x-request-id': 'request-0001',
        'x-user-id': 'ada',
      },
      traceparent: '00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01',
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
  ] as const)('with the query %j is refused with %s', async (query, code) => {
    await sendsNothing(async () => expectProblem(await ask({ query }), 400, code));
  });

  test.each([
    ['?custom_channel_id=a&bypass_tool_call_consent=true&x=1', 'custom_channel_id=a'],
    ['?custom_channel_id=%0d%0aX-Evil:1', 'custom_channel_id=%0D%0AX-Evil%3A1'],
    [
      '?force=true&request_id=r%2F1%26x&custom_channel_id=a%20b',
      'custom_channel_id=a+b&request_id=r%2F1%26x&force=true',
    ],
  ])('with the query %j goes upstream with %s', async (query, upstream) => {
    answer = jsonAnswer('200 OK', {});
    expect((await ask({ query })).status).toBe(200);
    expect(newest()?.requestLine).toBe(`POST ${SUSPEND_PATH}?${upstream} HTTP/1.1`);
  });

  test.each([
    ['with a body', ['Content-Length: 2\r\n\r\n{}'], PATH + CHANNEL, 413],
    ['with a chunked body', ['Transfer-Encoding: chunked\r\n\r\n2\r\n{}\r\n0'], PATH + CHANNEL, 413],
    ...['..', '%2e%2e', 'a%2Fb', '%00', 'a%5Cb'].map((bot): [string, string[], string, number] => [
      `of a bot ${bot}`,
      [],
      PATH.replace('helper', bot),
      404,
    ]),
  ])('%s is refused', async (_what, lines, target, status) => {
    await sendsNothing(async () => {
      const client = rawClient(pair.relay.port, rawSuspend(pair, lines, target));
      await client.waitFor('"requestId"');
      expect(parseAnswer(client.text()).status).toBe(status);
      client.socket.destroy();
    });
  });

  test('has its route pattern, its bot and its user in the log, and is counted', async () => {
    answer = jsonAnswer('200 OK', {});
    await ask({ query: '?custom_channel_id=shown-nowhere', headers: { 'X-Request-Id': 'logged-0001' } });
    expect(await pair.relay.logLine(({ requestId }) => requestId === 'logged-0001')).toMatchObject({
      route: '/relay/generic/ns/:namespace/bot-provider/:botProviderName/message/suspend',
      ...{
        method: 'POST',
        status: 200,
        outcome: 'ok',
        upstreamStatus: 200,
        userId: 'ada',
        bot: 'acme/helper',
      },
      ...{ slotWaitMs: expect.any(Number), bytes: 2 },
    });
    expect(JSON.stringify(pair.relay.logs)).not.toContain('shown-nowhere');
    const metrics = await pair.relay.metricsText();
    expect(metrics).toMatch(
      /bot_relay_requests_total\{route="[^"]*message\/suspend",.*status="200",code="ok"\} \d/,
    );
    expect(metrics).toMatch(/bot_relay_upstream_responses_total\{key="[0-9a-f]{8}",outcome="2xx"\} \d/);
  });
});
