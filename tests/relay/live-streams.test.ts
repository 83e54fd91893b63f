import type { Socket } from 'node:net';
import { afterAll, afterEach, beforeAll, describe, expect, jest, test } from '@jest/globals';
import type { ProblemCode } from '../../src/errors.ts';
import { call, expectProblem, parseAnswer } from '../harness/clients/call.ts';
import {
  askLive,
  bodyOf,
  LIVE,
  LIVE_KINDS,
  LIVE_PATH,
  type LiveKind,
  openKind,
  openLive,
  openStream,
} from '../harness/clients/live.ts';
import { jsonAnswer } from '../harness/clients/suspend.ts';
import { testSideBySide } from '../harness/clock/side-by-side.ts';
import { until } from '../harness/clock/until.ts';
import { CANARY, OTHER_USER, startRelay } from '../harness/relay/relay.ts';
import { type RelayAndUpstream, startRelayAndUpstream } from '../harness/relay/relay-and-upstream.ts';
import { startWithSandboxes, withSandboxes } from '../harness/service/launched-sandboxes.ts';
import {
  chunk,
  LAST_CHUNK,
  plainAnswer,
  type RawRequest,
  STREAM_HEAD,
  stalls,
  startRawUpstream,
  wholeStream,
} from '../harness/service/raw-upstream.ts';

const UPSTREAM_ID = /^[0-9a-f]{64}$/;
const targetOf = ({ requestLine }: RawRequest) => requestLine.split(' ')[1] ?? '';
const queryOf = (request: RawRequest) => new URL(targetOf(request), 'http://a').searchParams;
const idOf = (request: RawRequest) => queryOf(request).get('custom_channel_id') ?? '';

type Serve = (socket: Socket, request: RawRequest) => unknown;
let pair: RelayAndUpstream;
/** What the service does with the next request. */
let serve: Serve;
const answer = (bytes: string | Buffer) => {
  serve = (socket) => socket.write(bytes);
};
const newest = () => pair.upstream.requests.at(-1) as RawRequest;
beforeAll(async () => {
  const environment = { UPSTREAM_RESPONSE_TIMEOUT_MS: '500', MAX_EXECUTION_MS: '100' };
  pair = await startRelayAndUpstream((socket, request) => void serve(socket, request), environment);
});
afterAll(() => pair.close());

const owns: RelayAndUpstream[] = [];
afterEach(() => Promise.all(owns.splice(0).map((one) => one.close())));
/** A pair of its own for a test. */
async function startOwn(onRequest: Serve, environment: Record<string, string> = {}) {
  const own = await startRelayAndUpstream((socket, request) => void onRequest(socket, request), environment);
  owns.push(own);
  return own;
}

describe('the request for a live stream', () => {
  test.each([LIVE_PATH, `/generic${LIVE_PATH}`])(
    'at %s goes upstream with the same path, without a body and with its type',
    async (path) => {
      answer(wholeStream('data: 1\n\n'));
      const evil = { Authorization: 'Bearer evil', 'X-API-KEY': 'evil', 'X-Evil': 'evil' };
      const target = `${path}?custom_channel_id=c1&is_debug=true&bypass_tool_call_consent=true&x=evil`;
      const sent = { ...evil, 'Last-Event-ID': '41', 'Content-Type': 'application/json' };
      const answered = await askLive(pair, target, sent);
      expect([answered.status, answered.body]).toEqual([200, 'data: 1\n\n']);
      expect(answered.headers).toMatchObject({
        'content-type': 'text/event-stream',
        'cache-control': 'no-cache, no-transform',
        'x-accel-buffering': 'no',
      });
      const { requestLine, headers, all } = newest();
      expect(requestLine).toMatch(/^GET .* HTTP\/1\.1$/);
      expect(targetOf(newest()).split('?')[0]).toBe(path);
      expect([...queryOf(newest()).keys()]).toEqual(['custom_channel_id', 'is_debug']);
      expect(idOf(newest())).toMatch(UPSTREAM_ID);
      expect(headers.map(([name]) => name.toLowerCase()).sort()).toEqual([
        ...['accept', 'accept-encoding', 'connection', 'content-type', 'host', 'last-event-id'],
        ...['x-api-key', 'x-request-id'],
      ]);
      expect(['content-type', 'last-event-id', 'x-api-key'].map((name) => all(name)[0])).toEqual([
        ...['application/json', '41', CANARY.key],
      ]);
      expect(JSON.stringify(headers)).not.toContain('evil');
    },
  );

  test('goes upstream without BASE_PATH, and below the path of UPSTREAM_BASE_URL', async () => {
    answer(wholeStream('data: 1\n\n'));
    const relay = await startRelay(`${pair.upstream.url}/v1`, { BASE_PATH: '/relay', CHANNELS: 'shared' });
    const at = { relay, cookie: await relay.signIn() };
    expect((await askLive(at, `/relay${LIVE}`)).status).toBe(200);
    expect(targetOf(newest())).toBe(`/v1${LIVE}`);
    await relay.close();
  });

  test('names the same conversation as a message, of this user alone, and the page gets its own id back', async () => {
    serve = (socket, request) => {
      const { customChannelId } = JSON.parse(String(request.body) || '{}') as { customChannelId?: string };
      socket.write(STREAM_HEAD);
      for (const byte of `data: {"customChannelId":"${customChannelId ?? idOf(request)}"}\n\n`)
        socket.write(chunk(byte));
      socket.write(LAST_CHUNK);
    };
    const named = 'data: {"customChannelId":"c1"}\n\n';
    expect((await askLive(pair)).body).toBe(named);
    const live = idOf(newest());
    await (await pair.relay.send(pair.cookie)).text();
    expect(JSON.parse(String(newest().body))).toMatchObject({ customChannelId: live });
    expect((await askLive({ ...pair, cookie: await pair.relay.signIn(OTHER_USER) })).body).toBe(named);
    expect(idOf(newest())).not.toBe(live);
  });

  test('with a refused key is sent with the next one, which is remembered', async () => {
    const own = await startOwn(
      (socket, { all }) =>
        socket.write(
          all('x-api-key')[0] === CANARY.key ? plainAnswer('401 No', []) : wholeStream('data: 1\n\n'),
        ),
      { UPSTREAM_API_KEYS: `${CANARY.key},${CANARY.secondKey}` },
    );
    for (let n = 0; n < 2; n += 1) expect((await askLive(own)).status).toBe(200);
    const keys = own.upstream.requests.map(({ all }) => all('x-api-key')[0]);
    expect(keys).toEqual([CANARY.key, CANARY.secondKey, CANARY.secondKey]);
    expect(own.relay.logs).toContainEqual(expect.objectContaining({ msg: 'upstream key accepted' }));
  });

  test.each([
    ['', {}, 400, 'invalid_conversation'],
    ['?custom_channel_id=a&custom_channel_id=b', {}, 400, 'invalid_conversation'],
    ['?custom_channel_id=a&customChannelId=b', {}, 400, 'invalid_conversation'],
    ['?custom_channel_id=a&is_debug=evil', {}, 400, 'invalid_query'],
    ['?custom_channel_id=a', { 'Content-Length': '2' }, 413, 'body_too_large'],
  ] as const)('with the query %j and the headers %j is refused', async (query, headers, status, code) => {
    const before = pair.upstream.requests.length;
    expectProblem(await askLive(pair, LIVE_PATH + query, headers), status, code);
    expect(pair.upstream.requests).toHaveLength(before);
  });
});

type Refused = [what: string, serve: Serve | string, status: number, code: ProblemCode, more?: object];
const bad = (what: string, bytes: string): Refused => [
  ...([what, bytes, 502, 'upstream_bad_response'] as const),
  { upstreamStatus: Number(bytes.split(' ')[1]) },
];
const AGAIN = { retryable: 'new message' };
const json = (id: string) => ({ error: { channel: id, text: CANARY.key } });
/** The connections on which nothing comes. */
const silent: Socket[] = [];
const REFUSED: Refused[] = [
  bad('404 of JSON in HTML', plainAnswer('404 Not Found', ['Content-Type: text/html'], '{}')),
  bad('404 of encoded JSON', jsonAnswer('404 Not Found', {}, ['Content-Encoding: br'])),
  bad('404 of much JSON', jsonAnswer('404 Not Found', { text: 'a'.repeat(9000) })),
  bad('500', jsonAnswer('500 No', {})),
  [
    '400 with JSON',
    (socket, request) => socket.write(jsonAnswer('400 No', json(idOf(request)))),
    ...([400, 'upstream_refused', { upstream: { error: { channel: 'c1', text: '[secret]' } } }] as const),
  ],
  ['403', plainAnswer('403 No', []), 403, 'upstream_refused'],
  ['401 to every key', plainAnswer('401 No', []), 502, 'upstream_key_rejected'],
  // Neither has run anything.
  ['nothing in time', (socket) => void silent.push(socket), 504, 'upstream_timeout', AGAIN],
  ['a break before its head', (socket) => socket.resetAndDestroy(), 502, 'upstream_unreachable', AGAIN],
];

describe('the answer of the service to the request for a live stream', () => {
  test('404 with JSON is passed on, with the id of the page, and every other byte but keys', async () => {
    const text = (id: string, key: string) =>
      `{ "z":9007199254740993, "a":1.0,"c" : "${id}","k":"${key}", "1":2}\n`;
    serve = (socket, request) => {
      const headers = ['Content-Type: application/json', 'X-Trace-Id: t-1', 'X-Evil: 1'];
      socket.write(plainAnswer('404 Not Found', headers, text(idOf(request), CANARY.key)));
    };
    const answered = await askLive(pair);
    expect([answered.status, answered.body]).toEqual([404, text('c1', '[secret]')]);
    expect(answered.headers).toMatchObject({
      ...{ 'content-type': 'application/json', 'cache-control': 'no-store', 'x-trace-id': 't-1' },
      'content-length': String(Buffer.byteLength(answered.body)),
    });
    expect(answered.headers['x-evil']).toBeUndefined();
  });

  test.each(REFUSED)('%s is no stream', async (_name, answers, status, code, more = {}) => {
    serve = typeof answers === 'string' ? (socket) => socket.write(answers) : answers;
    const before = pair.upstream.requests.length;
    expectProblem(await askLive(pair), status, code, more);
    expect(pair.upstream.requests).toHaveLength(before + 1);
    if (code === 'upstream_timeout') await until(() => silent[0]?.destroyed === true);
  });

  test('429 is passed on at once, and pauses the endpoint', async () => {
    const busy = plainAnswer('429 No', ['Retry-After: 30']);
    const own = await startOwn((socket) => socket.write(busy), { RATE_MAX_WAIT_MS: '0' });
    const answered = await askLive(own);
    expectProblem(answered, 429, 'upstream_rate_limited');
    expect(answered.headers['retry-after']).toBe('30');
    expect((await own.relay.send(own.cookie)).status).toBe(429);
    expect(own.upstream.requests).toHaveLength(1);
  });

  test('that breaks on a kept connection is 502: each sending has its slot, and none is repeated without one', async () => {
    const answers = [(socket: Socket) => void socket.write(wholeStream('data: 1\n\n'))];
    const own = await startOwn((socket) => (answers.shift() ?? (() => socket.resetAndDestroy()))(socket));
    expect((await askLive(own)).status).toBe(200);
    expectProblem(await askLive(own), 502, 'upstream_unreachable', { retryable: 'new message' });
    expect([own.upstream.requests.length, own.upstream.sockets.length]).toEqual([2, 1]);
  });
});

test('a live stream is counted apart from those of messages, and has its log line', async () => {
  const own = await startOwn((socket) => socket.write(openStream('data: 1\n\n')));
  const values = async (...names: string[]) => {
    const text = await own.relay.metricsText();
    return names.map((name) => new RegExp(`^bot_relay_${name} (.*)$`, 'm').exec(text)?.[1]);
  };
  const client = openLive(own, { headers: ['X-Request-Id: the-live-one'] });
  await client.waitFor('data: 1\n\n');
  expect(await values('open_live_streams', 'open_streams', 'open_messages')).toEqual(['1', '0', '0']);
  client.socket.destroy();
  const line = await own.relay.logLine(({ requestId }) => requestId === 'the-live-one');
  expect(line).toMatchObject({
    ...{ level: 'info', method: 'GET', status: 200, outcome: 'client_closed', upstreamStatus: 200, bytes: 9 },
    ...{ userId: 'ada', slotWaitMs: expect.any(Number), firstByteMs: expect.any(Number) },
    route: '/ns/:namespace/bot-provider/:botProviderName/message/sse',
  });
  await until(async () => (await values('open_live_streams'))[0] === '0');
  expect(await values('stream_duration_seconds_count', 'time_to_first_byte_seconds_count')).toEqual([
    '0',
    '0',
  ]);
  expect(await own.relay.metricsText()).toMatch(
    /^bot_relay_slot_wait_seconds_count\{outcome="granted"\} 0$/m,
  );
});

describe('the end of live streams', () => {
  const ONE = 'data: 1\n\n';
  const RUN = ['run.init', 'run.done'].map((name) => `data: {"eventType":"asgard.${name}"}\n\n`).join('');
  const LONG_GRACE = { SHUTDOWN_GRACE_MS: '60000' };

  // Each case has its own relay, so that the cases can wait side by side.
  const closings: (() => Promise<void>)[] = [];
  afterAll(() => Promise.all(closings.map((close) => close())));

  async function start(
    answer: string | Buffer = openStream(ONE),
    environment: Record<string, string> = {},
  ): Promise<RelayAndUpstream> {
    const pair = await startWithSandboxes((socket) => void socket.write(answer), {
      ...{ OPERATIONS: 'message,chat,sandbox', ...environment },
    });
    closings.push(pair.close);
    return pair;
  }

  const logOut = ({ relay, cookie }: Pick<RelayAndUpstream, 'relay' | 'cookie'>) =>
    call(relay.port, '/auth/logout', { method: 'POST', headers: { Cookie: cookie } });
  const lineOf = ({ relay }: Pick<RelayAndUpstream, 'relay'>) =>
    relay.logLine(({ bot }) => bot === 'acme/helper');

  /** Holds the next check of a session, after it was read or before, until `release` is called. */
  function holdCheck({ relay }: RelayAndUpstream, isRead: boolean) {
    const { sessions } = relay.parts;
    const get = sessions.get.bind(sessions);
    const checked = Promise.withResolvers<void>();
    const released = Promise.withResolvers<void>();
    jest.spyOn(sessions, 'get').mockImplementationOnce(async (key) => {
      const session = isRead ? await get(key) : undefined;
      checked.resolve();
      await released.promise;
      return isRead ? session : get(key);
    });
    return { checked: checked.promise, release: released.resolve };
  }

  /** Expects that it is cut, without an error event. */
  async function breaks(kind: LiveKind, sent: string, came: string): Promise<void> {
    const pair = await start(openStream(sent));
    const client = openKind(pair, kind);
    await client.waitFor(came);
    pair.upstream.sockets[0]?.resetAndDestroy();
    await client.closed;
    expect(bodyOf(client)).toEqual({ body: came, complete: false });
    const line = await lineOf(pair);
    expect(line).toMatchObject({ outcome: 'upstream_stream_broken', cause: 'ECONNRESET', status: 200 });
    expect(line.notResumed).toBeUndefined();
    expect(pair.upstream.requests).toHaveLength(1);
  }

  /** Expects that each client that leaves closes its upstream connection, and gives its place back. */
  async function leaves(kind: LiveKind, sent: string | Buffer): Promise<void> {
    const pair = await start(sent, { MAX_STREAMS_PER_USER: '1' });
    for (let n = 1; n < 4; n += 1) {
      const client = openKind(pair, kind, `left-number-${n}`);
      await until(() => pair.upstream.requests.length === n);
      if (sent.length > 0) await client.waitFor(ONE);
      client.socket.destroy();
      await pair.relay.logLine(({ requestId }) => requestId === `${kind.id}left-number-${n}`);
      await until(() => pair.upstream.sockets.every(({ destroyed }) => destroyed));
    }
  }

  const CASES: Record<string, (kind: LiveKind) => Promise<void>> = {
    async 'carries whole events only, and heartbeats between them; no deadline ends it'(kind) {
      const pair = await start(openStream(`${ONE}data: ha`), {
        ...{ HEARTBEAT_MS: '200', MAX_EXECUTION_MS: '300', UPSTREAM_RESPONSE_TIMEOUT_MS: '2000' },
      });
      const client = openKind(pair, kind);
      await client.waitFor(ONE);
      await until(() => bodyOf(client).body.split(':\n').length > 15);
      expect(bodyOf(client).body).toMatch(/^data: 1\n\n(:\n)+$/);
      pair.upstream.sockets[0]?.write(chunk('lf\n\n'));
      await client.waitFor('data: half\n\n');
      client.socket.destroy();
    },
    'that breaks between two events is cut': (kind) => breaks(kind, ONE, ONE),
    'that breaks inside an event is cut': (kind) => breaks(kind, `${ONE}data: ha`, ONE),
    'that breaks after a run is cut, although nothing of that is missing': (kind) => breaks(kind, RUN, RUN),
    async 'that the service ends ends in good order, also in the middle of a run'(kind) {
      const events = 'data: {"eventType":"asgard.run.init"}\n\nid: 7\ndata: 2\n\n';
      const client = openKind(await start(wholeStream(events)), kind, 'closing-one', ['Connection: close']);
      await client.closed;
      expect(bodyOf(client)).toEqual({ body: events, complete: true });
    },
    'ends at the service when its client leaves before the headers of its answer': (kind) => leaves(kind, ''),
    'ends at the service when its client leaves in the middle of it': (kind) => leaves(kind, openStream(ONE)),
    async 'is cut by a logout of its session, and no other one is'(kind) {
      const pair = await start();
      const mine = openKind(pair, kind);
      const others = openKind({ ...pair, cookie: await pair.relay.signIn() }, kind);
      await Promise.all([mine, others].map((client) => client.waitFor(ONE)));
      await logOut(pair);
      await mine.closed;
      expect(bodyOf(mine)).toEqual({ body: ONE, complete: false });
      await until(() => pair.upstream.sockets.filter(({ destroyed }) => destroyed).length === 1);
      for (const socket of pair.upstream.sockets) if (!socket.destroyed) socket.write(chunk('data: 2\n\n'));
      await others.waitFor('data: 2\n\n');
      others.socket.destroy();
      expect(await lineOf(pair)).toMatchObject({ outcome: 'session_ended' });
    },
    async 'that waits for its answer is ended by a logout with 401'(kind) {
      const pair = await start('');
      const client = openKind(pair, kind);
      await until(() => pair.upstream.requests.length === 1);
      await logOut(pair);
      await client.waitFor('"code":"session_ended"');
      expect(parseAnswer(client.text()).status).toBe(401);
      client.socket.destroy();
    },
    async 'is refused by a logout that comes between the check of the session and its beginning'(kind) {
      const pair = await start();
      const { checked, release } = holdCheck(pair, true);
      const client = openKind(pair, kind);
      await checked;
      await logOut(pair);
      release();
      await client.waitFor('"code":"unauthenticated"');
      client.socket.destroy();
      expect(pair.upstream.requests).toEqual([]);
    },
    async 'whose session is checked as draining begins is refused, and does not reach the service'(kind) {
      const pair = await start(openStream(ONE), LONG_GRACE);
      const { checked, release } = holdCheck(pair, false);
      const client = openKind(pair, kind);
      await checked;
      const closed = pair.relay.close();
      await until(() => pair.relay.parts.lifecycle.isDraining());
      release();
      await client.waitFor('"code":"draining"');
      expect(parseAnswer(client.text()).status).toBe(503);
      client.socket.destroy();
      await closed;
      expect(pair.upstream.requests).toEqual([]);
    },
    async 'is cut as soon as draining begins, and no message is'(kind) {
      const pair = await start(openStream(ONE), LONG_GRACE);
      const text = (await pair.relay.send(pair.cookie)).text();
      const client = openKind(pair, kind);
      await client.waitFor(ONE);
      const closed = pair.relay.close();
      await client.closed;
      expect(bodyOf(client)).toEqual({ body: ONE, complete: false });
      pair.upstream.sockets[0]?.write(Buffer.concat([chunk('data: 2\n\n'), Buffer.from(LAST_CHUNK)]));
      expect(await text).toBe(`${ONE}data: 2\n\n`);
      await closed;
      const [line] = pair.relay.logs.filter(({ method, bot }) => method === 'GET' && bot !== undefined);
      expect(line).toMatchObject({ outcome: 'draining' });
    },
  };

  testSideBySide(
    LIVE_KINDS.flatMap((kind) =>
      Object.entries(CASES).map(([title, run]): [string, () => Promise<void>] => [
        `${kind.name} ${title}`,
        () => run(kind),
      ]),
    ),
  );

  test('live streams are ended by the idle limit, although they carry data', async () => {
    const sockets: Socket[] = [];
    const onRequest = (socket: Socket) => {
      sockets.push(socket);
      socket.write(openStream(ONE));
    };
    const upstream = await startRawUpstream(withSandboxes(() => upstream, onRequest));
    const relay = await startRelay(upstream.url, { OPERATIONS: 'chat,sandbox' }, { idleMs: 600_000 });
    closings.push(relay.close, upstream.close);
    const at = { relay, cookie: await relay.signIn() };
    const clients = LIVE_KINDS.map((kind) => openKind(at, kind));
    await Promise.all(clients.map((client) => client.waitFor(ONE)));
    const now = Date.now.bind(Date);
    const clock = jest.spyOn(Date, 'now').mockImplementation(() => now() + 600_000);
    const delivering = setInterval(() => {
      for (const socket of sockets) socket.write(chunk(ONE));
    }, 20);
    for (const client of clients) {
      await client.closed;
      expect(bodyOf(client)).toMatchObject({ complete: false });
    }
    clearInterval(delivering);
    clock.mockRestore();
    await until(() => relay.logs.filter(({ outcome }) => outcome === 'session_ended').length === 2);
  });

  // It keeps the process busy, so that it runs alone.
  test('a live stream is read no faster than its client reads it, and nothing of it is lost', async () => {
    const much = Buffer.alloc(9 * (2 << 20), 'data: a\n\n');
    const pair = await start(Buffer.concat([Buffer.from(STREAM_HEAD), chunk(much), Buffer.from(LAST_CHUNK)]));
    const client = openLive(pair);
    await client.waitFor('data: a\n\n');
    client.socket.pause();
    await stalls(pair.upstream.sockets[0] as Socket);
    client.socket.resume();
    await until(() => client.reads.at(-1)?.bytes.includes('0\r\n\r\n') === true);
    expect(bodyOf(client)).toEqual({ body: much.toString('latin1'), complete: true });
    client.socket.destroy();
  });
});
