import type { Socket } from 'node:net';
import { afterEach, describe, expect, test } from '@jest/globals';
import { expectProblem } from '../harness/clients/call.ts';
import { askLive, LIVE, LIVE_PATH, openLive, openStream } from '../harness/clients/live.ts';
import { jsonAnswer } from '../harness/clients/suspend.ts';
import { CANARY, OTHER_USER, startRelay } from '../harness/relay/relay.ts';
import {
  plainAnswer,
  type RelayAndUpstream,
  startRelayAndUpstream,
  until,
} from '../harness/relay/relay-and-upstream.ts';
import {
  chunk,
  LAST_CHUNK,
  type RawRequest,
  STREAM_HEAD,
  wholeStream,
} from '../harness/service/raw-upstream.ts';

const UPSTREAM_ID = /^[0-9a-f]{64}$/;

const pairs: RelayAndUpstream[] = [];
afterEach(() => Promise.all(pairs.splice(0).map((pair) => pair.close())));

async function start(
  answer: string | Buffer | ((socket: Socket, request: RawRequest) => void),
  environment: Record<string, string> = {},
): Promise<RelayAndUpstream> {
  const onRequest = typeof answer === 'function' ? answer : (socket: Socket) => void socket.write(answer);
  const pair = await startRelayAndUpstream(onRequest, environment);
  pairs.push(pair);
  return pair;
}

const targetOf = ({ requestLine }: RawRequest) => requestLine.split(' ')[1] ?? '';
const queryOf = (request: RawRequest) => new URL(targetOf(request), 'http://a').searchParams;
const idOf = (request: RawRequest) => queryOf(request).get('custom_channel_id') ?? '';
const namesOf = ({ headers }: RawRequest) => headers.map(([name]) => name.toLowerCase()).sort();

describe('the request for a live stream', () => {
  test.each([LIVE_PATH, `/generic${LIVE_PATH}`])(
    'at %s goes upstream with the same path, without a body and with its type',
    async (path) => {
      const pair = await start(wholeStream('data: 1\n\n'));
      const sent = {
        Authorization: 'Bearer evil',
        'X-API-KEY': 'evil',
        'Last-Event-ID': '41',
        'X-Evil': 'evil',
      };
      const target = `${path}?custom_channel_id=c1&is_debug=true&bypass_tool_call_consent=true&x=evil`;
      const answer = await askLive(pair, target, { ...sent, 'Content-Type': 'application/json' });
      expect([answer.status, answer.body]).toEqual([200, 'data: 1\n\n']);
      expect(answer.headers).toMatchObject({
        'content-type': 'text/event-stream',
        'cache-control': 'no-cache, no-transform',
        'x-accel-buffering': 'no',
      });
      const [request] = pair.upstream.requests as [RawRequest];
      expect(request.requestLine).toMatch(/^GET .* HTTP\/1\.1$/);
      expect(targetOf(request).split('?')[0]).toBe(path);
      expect([...queryOf(request).keys()]).toEqual(['custom_channel_id', 'is_debug']);
      expect(idOf(request)).toMatch(UPSTREAM_ID);
      expect(namesOf(request)).toEqual([
        ...['accept', 'accept-encoding', 'connection', 'content-type', 'host', 'last-event-id'],
        ...['x-api-key', 'x-request-id'],
      ]);
      expect(request.all('content-type')).toEqual(['application/json']);
      expect(request.all('last-event-id')).toEqual(['41']);
      expect(request.all('x-api-key')).toEqual([CANARY.key]);
      expect(JSON.stringify(request.headers)).not.toContain('evil');
    },
  );

  test('goes upstream without BASE_PATH, and below the path of UPSTREAM_BASE_URL', async () => {
    const pair = await start(wholeStream('data: 1\n\n'));
    const relay = await startRelay(`${pair.upstream.url}/v1`, { BASE_PATH: '/relay', CHANNELS: 'shared' });
    const cookie = await relay.signIn();
    const client = openLive({ relay, cookie }, { target: `/relay${LIVE}` });
    await client.waitFor(LAST_CHUNK);
    expect(targetOf(pair.upstream.requests[0] as RawRequest)).toBe(`/v1${LIVE}`);
    client.socket.destroy();
    await relay.close();
  });

  test('names the same conversation as a message, of this user alone, and the page gets its own id back', async () => {
    const pair = await start((socket, request) => {
      const id =
        request.body.length > 0
          ? (JSON.parse(String(request.body)) as { customChannelId: string }).customChannelId
          : idOf(request);
      socket.write(STREAM_HEAD);
      for (const byte of `data: {"customChannelId":"${id}"}\n\n`) socket.write(chunk(byte));
      socket.write(LAST_CHUNK);
    });
    expect((await askLive(pair)).body).toBe('data: {"customChannelId":"c1"}\n\n');
    await (await pair.relay.send(pair.cookie)).text();
    const [live, message] = pair.upstream.requests as [RawRequest, RawRequest];
    expect(JSON.parse(String(message.body))).toMatchObject({ customChannelId: idOf(live) });
    const other = { ...pair, cookie: await pair.relay.signIn(OTHER_USER) };
    expect((await askLive(other)).body).toBe('data: {"customChannelId":"c1"}\n\n');
    expect(idOf(pair.upstream.requests.at(-1) as RawRequest)).not.toBe(idOf(live));
  });

  test('with a refused key is sent with the next one, which is remembered', async () => {
    const pair = await start(
      (socket, { all }) =>
        void socket.write(
          all('x-api-key')[0] === CANARY.key ? plainAnswer('401 No', []) : wholeStream('data: 1\n\n'),
        ),
      { UPSTREAM_API_KEYS: `${CANARY.key},${CANARY.secondKey}` },
    );
    for (let n = 0; n < 2; n += 1) expect((await askLive(pair)).status).toBe(200);
    const keys = pair.upstream.requests.map(({ all }) => all('x-api-key')[0]);
    expect(keys).toEqual([CANARY.key, CANARY.secondKey, CANARY.secondKey]);
    expect(pair.relay.logs).toContainEqual(expect.objectContaining({ msg: 'upstream key accepted' }));
  });

  test.each([
    ['', 'invalid_conversation'],
    ['?custom_channel_id=a&custom_channel_id=b', 'invalid_conversation'],
    ['?custom_channel_id=a&customChannelId=b', 'invalid_conversation'],
    ['?custom_channel_id=a&is_debug=evil', 'invalid_query'],
  ] as const)('with the query %j is refused with %s', async (query, code) => {
    const pair = await start('');
    expectProblem(await askLive(pair, LIVE_PATH + query), 400, code);
    expect(pair.upstream.requests).toEqual([]);
  });

  test('with a body is refused', async () => {
    const pair = await start('');
    const client = openLive(pair, { headers: ['Content-Length: 2'] });
    await client.waitFor('"code":"body_too_large"');
    client.socket.destroy();
    expect(pair.upstream.requests).toEqual([]);
  });
});

describe('the answer of the service', () => {
  const json = (id: string) => ({ error: { channel: id, text: CANARY.key } });

  test('404 with JSON is passed on, with the id of the page', async () => {
    const pair = await start(
      (socket, request) =>
        void socket.write(jsonAnswer('404 Not Found', json(idOf(request)), ['X-Trace-Id: t-1', 'X-Evil: 1'])),
    );
    const answer = await askLive(pair);
    expect([answer.status, JSON.parse(answer.body)]).toEqual([
      404,
      { error: { channel: 'c1', text: '[secret]' } },
    ]);
    expect(answer.headers).toMatchObject({
      ...{ 'content-type': 'application/json', 'cache-control': 'no-store', 'x-trace-id': 't-1' },
      'content-length': String(Buffer.byteLength(answer.body)),
    });
    expect(answer.headers['x-evil']).toBeUndefined();
  });

  test('404 with JSON keeps its bytes but for the id and keys', async () => {
    const text = (id: string, key: string) =>
      `{ "z":9007199254740993, "a":1.0,"c" : "${id}","k":"${key}", "1":2}\n`;
    const pair = await start((socket, request) => {
      const head = ['Content-Type: application/json'];
      socket.write(plainAnswer('404 Not Found', head, text(idOf(request), CANARY.key)));
    });
    expect((await askLive(pair)).body).toBe(text('c1', '[secret]'));
  });

  test.each([
    ['404 of HTML', plainAnswer('404 Not Found', ['Content-Type: text/html'], '<p>no</p>')],
    ['404 of JSON in HTML', plainAnswer('404 Not Found', ['Content-Type: text/html'], '{}')],
    ['404 without a body', plainAnswer('404 Not Found', ['Content-Type: application/json'])],
    [
      '404 of encoded JSON',
      plainAnswer('404 Not Found', ['Content-Type: application/json', 'Content-Encoding: br'], '{}'),
    ],
    ['404 of much JSON', jsonAnswer('404 Not Found', { text: 'a'.repeat(9000) })],
    ['500', jsonAnswer('500 No', {})],
    ['204', 'HTTP/1.1 204 No Content\r\n\r\n'],
    ['200 without a stream', jsonAnswer('200 OK', {})],
  ])('%s is 502', async (_name, bytes) => {
    const pair = await start(bytes);
    expectProblem(await askLive(pair), 502, 'upstream_bad_response');
    expect(pair.upstream.requests).toHaveLength(1);
  });

  test('400 with JSON is a refusal', async () => {
    const pair = await start(
      (socket, request) => void socket.write(jsonAnswer('400 No', json(idOf(request)))),
    );
    const upstream = { error: { channel: 'c1', text: '[secret]' } };
    expectProblem(await askLive(pair), 400, 'upstream_refused', { upstream });
  });

  test('403 is a refusal, and 401 to every key is 502', async () => {
    const pair = await start(plainAnswer('403 No', []));
    expectProblem(await askLive(pair), 403, 'upstream_refused');
    const other = await start(plainAnswer('401 No', []));
    expectProblem(await askLive(other), 502, 'upstream_key_rejected');
  });

  test('429 is passed on at once, and pauses the endpoint', async () => {
    const pair = await start(plainAnswer('429 No', ['Retry-After: 30']), { RATE_MAX_WAIT_MS: '0' });
    const answer = await askLive(pair);
    expectProblem(answer, 429, 'upstream_rate_limited');
    expect(answer.headers['retry-after']).toBe('30');
    expect((await pair.relay.send(pair.cookie)).status).toBe(429);
    expect(pair.upstream.requests).toHaveLength(1);
  });

  test('that does not come is 504, and one that breaks before its head 502; neither has run anything', async () => {
    const pair = await start('', { UPSTREAM_RESPONSE_TIMEOUT_MS: '500', MAX_EXECUTION_MS: '100' });
    expectProblem(await askLive(pair), 504, 'upstream_timeout', { retryable: 'new message' });
    await until(() => pair.upstream.sockets.every(({ destroyed }) => destroyed));
    const other = await start((socket) => void socket.resetAndDestroy());
    expectProblem(await askLive(other), 502, 'upstream_unreachable', { retryable: 'new message' });
    expect(other.upstream.requests).toHaveLength(1);
  });

  test('that breaks on a kept connection is 502: each sending has its slot, and none is repeated without one', async () => {
    const answers = [(socket: Socket) => void socket.write(wholeStream('data: 1\n\n'))];
    const pair = await start((socket) => (answers.shift() ?? (() => socket.resetAndDestroy()))(socket));
    expect((await askLive(pair)).status).toBe(200);
    expectProblem(await askLive(pair), 502, 'upstream_unreachable', { retryable: 'new message' });
    expect(pair.upstream.requests).toHaveLength(2);
    expect(pair.upstream.sockets).toHaveLength(1);
  });
});

test('a live stream is counted apart from those of messages, and has its log line', async () => {
  const pair = await start(openStream('data: 1\n\n'), { METRICS_PORT: '9' });
  const value = async (name: string) =>
    new RegExp(`^bot_relay_${name} (.*)$`, 'm').exec(await pair.relay.metricsText())?.[1];
  const client = openLive(pair, { headers: ['X-Request-Id: the-live-one'] });
  await client.waitFor('data: 1\n\n');
  expect([
    await value('open_live_streams'),
    await value('open_streams'),
    await value('open_messages'),
  ]).toEqual([...['1', '0', '0']]);
  client.socket.destroy();
  const line = await pair.relay.logLine(({ requestId }) => requestId === 'the-live-one');
  expect(line).toMatchObject({
    ...{ level: 'info', method: 'GET', status: 200, outcome: 'client_closed', upstreamStatus: 200, bytes: 9 },
    ...{ userId: 'ada', slotWaitMs: expect.any(Number), firstByteMs: expect.any(Number) },
    route: '/ns/:namespace/bot-provider/:botProviderName/message/sse',
  });
  await until(() => pair.relay.open.count() === 0);
  await new Promise((resolve) => setImmediate(resolve));
  expect(await value('open_live_streams')).toBe('0');
  expect(await value('stream_duration_seconds_count')).toBe('0');
  expect(await value('time_to_first_byte_seconds_count')).toBe('0');
  expect(await value('slot_wait_seconds_count{outcome="granted"}')).toBe('0');
});
