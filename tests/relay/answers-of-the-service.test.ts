import { once } from 'node:events';
import type { Socket } from 'node:net';
import { gzipSync } from 'node:zlib';
import { afterAll, afterEach, beforeAll, describe, expect, jest, test } from '@jest/globals';
import { Problem, type ProblemCode } from '../../src/errors.ts';
import { call, expectProblem, parseAnswer } from '../harness/clients/call.ts';
import { errorEventIn, expectErrorEvent } from '../harness/clients/error-event.ts';
import { dechunk, type RawClient, rawClient, rawMessage } from '../harness/clients/raw-client.ts';
import { holdTimers } from '../harness/clock/hold-timers.ts';
import { until } from '../harness/clock/until.ts';
import { total } from '../harness/relay/metric-samples.ts';
import { CANARY, expectNoCanary } from '../harness/relay/relay.ts';
import { type RelayAndUpstream, startRelayAndUpstream } from '../harness/relay/relay-and-upstream.ts';
import {
  chunk,
  LAST_CHUNK,
  plainAnswer,
  STREAM_HEAD,
  startRawUpstream,
} from '../harness/service/raw-upstream.ts';

/** One of them contains another. */
const KEYS = [CANARY.key.slice(0, 10), CANARY.key, CANARY.secondKey];
const JSON_TYPE = 'Content-Type: application/json';
const STREAM_TYPE = 'Content-Type: text/event-stream';
const CHUNKED = 'Transfer-Encoding: chunked';
const EVENT = 'data: a\n\n';

let pair: RelayAndUpstream;
/** What the service does with the next request. */
let serve: (socket: Socket) => unknown;
let messages = 0;
beforeAll(async () => {
  pair = await startRelayAndUpstream((socket) => void serve(socket), {
    ...{ UPSTREAM_API_KEYS: KEYS.join(), RATE_MAX_WAIT_MS: '0' },
  });
});
afterAll(() => pair.close());

/** The answer to a message that the service answers with `bytes`; nothing of it may show that should not. */
async function answerTo(bytes: string | Buffer | typeof serve, headers: readonly string[] = []) {
  serve = typeof bytes === 'function' ? bytes : (socket) => socket.write(bytes);
  messages += 1;
  const requestId = `message-${String(messages).padStart(6, '0')}`;
  const requests = pair.upstream.requests.length;
  // Each is a message of its own: the same bytes would join its run.
  const body = JSON.stringify({ text: `hi ${messages}` });
  const client = pair.ask({ body, headers: ['Connection: close', `X-Request-Id: ${requestId}`, ...headers] });
  await client.closed;
  const text = client.text();
  expectNoCanary(text);
  expect(text).not.toMatch(/leak|127\.0\.0\.1|HPE_/i);
  expect(pair.upstream.requests).toHaveLength(requests + 1);
  const line = await pair.relay.logLine((one) => one.msg === 'request' && one.requestId === requestId);
  return { text, answer: parseAnswer(text), line };
}
const chunked = (statusLine: string, headers: readonly string[], body: string | Buffer) =>
  Buffer.concat([
    Buffer.from(`${[`HTTP/1.1 ${statusLine}`, CHUNKED, ...headers].join('\r\n')}\r\n\r\n`),
    ...(body.length > 0 ? [chunk(body)] : []),
    Buffer.from(LAST_CHUNK),
  ]);
const json = (body: string, status = '400 No') => plainAnswer(status, [JSON_TYPE], body);

type Row = [
  what: string,
  bytes: string | Buffer | typeof serve,
  status: number,
  code: ProblemCode,
  upstream?: unknown,
];
const OWN = { code: 'E1', nested: [{ text: 'no', at: null }, 1, true] };
const refused = (what: string, bytes: string | Buffer, status: number, upstream?: unknown): Row =>
  [
    ...([what, bytes, status, 'upstream_refused'] as const),
    ...(upstream === undefined ? [] : [upstream]),
  ] as Row;
const bad = (what: string, bytes: string | Buffer): Row => [what, bytes, 502, 'upstream_bad_response'];
const escaped = `\\u0063anary-${CANARY.key.slice(7).replace('k', '\\u006B').replace('-', '\\u002d')}`;
const MASKED = { message: 'bad key [secret], [secret]!', list: ['[secret]'], '[secret]': 1 };
const naming = (key: string) => `{"message":"bad key ${key}, ${key}!","list":["${key}"],"${key}":1}`;
const textOf = (length: number) => JSON.stringify('x'.repeat(length - 2));

const FAILURES: Row[] = [
  ...[400, 404, 409, 413, 415, 422].map((status) =>
    refused(`${status} and JSON`, json(JSON.stringify(OWN), `${status} No`), status, OWN),
  ),
  refused('JSON that names a key with escapes', json(naming(escaped)), 400, MASKED),
  refused('JSON that names another key', json(naming(CANARY.secondKey)), 400, MASKED),
  refused(
    'JSON in small chunks',
    Buffer.concat([
      Buffer.from(`HTTP/1.1 400 No\r\n${JSON_TYPE}\r\n${CHUNKED}\r\n\r\n`),
      ...[...naming(CANARY.key)].map(chunk),
      Buffer.from(LAST_CHUNK),
    ]),
    400,
    MASKED,
  ),
  refused('8 KiB of JSON', json(textOf(8192)), 400, 'x'.repeat(8190)),
  refused('more JSON', json(textOf(8193)), 400),
  refused('422 and HTML', plainAnswer('422 No', ['Content-Type: text/html'], '<p>leak</p>'), 422),
  bad('JSON', chunked('200 OK', [JSON_TYPE], '{"leak":1}')),
  bad('no type', chunked('200 OK', [], 'leak')),
  bad('a type with the same beginning', chunked('200 OK', [`${STREAM_TYPE}s`], 'leak')),
  bad('a type with it as a parameter', chunked('200 OK', ['Content-Type: a/b; x=text/event-stream'], 'leak')),
  bad('204', `HTTP/1.1 204 No Content\r\n${STREAM_TYPE}\r\n\r\n`),
  bad('a failing stream', chunked('500 Oops', [STREAM_TYPE], 'data: leak\n\n')),
  bad('503 and JSON', chunked('503 Busy', [JSON_TYPE, 'Retry-After: 7'], '{"leak":1}')),
  bad(
    'an encoded stream',
    chunked('200 OK', [STREAM_TYPE, 'Content-Encoding: identity, BR'], gzipSync(EVENT)),
  ),
  bad(
    'a stream in two transfer codings',
    `HTTP/1.1 200 OK\r\n${STREAM_TYPE}\r\nTransfer-Encoding: gzip, chunked\r\n\r\n`,
  ),
  bad('no HTTP', '220 leak ESMTP\r\n'),
  bad('another protocol', 'HTTP/1.1 101 Switching Protocols\r\nConnection: upgrade\r\nUpgrade: leak\r\n\r\n'),
  [
    'JSON that breaks off',
    (socket) => socket.end(`HTTP/1.1 422 No\r\n${JSON_TYPE}\r\nContent-Length: 99\r\n\r\n{"leak":1}`),
    422,
    'upstream_refused',
  ],
  ['the end of the connection', (socket) => socket.destroy(), 502, 'upstream_unreachable'],
];

describe.each(FAILURES)(
  'a message that the service answers with %s',
  (_what, bytes, status, code, upstream) => {
    const members = {
      retryable: false,
      ...(code !== 'upstream_refused' && { maybeStarted: true }),
      ...(upstream !== undefined && { upstream }),
    } as object;
    const answered = code === 'upstream_bad_response' && / ([2-5]\d\d) /.exec(String(bytes))?.[1];
    if (answered) Object.assign(members, { upstreamStatus: Number(answered) });
    const level = status < 500 ? 'info' : 'warn';

    test('has a stream with one error event, whose code the log and the metric have', async () => {
      const counted = async () =>
        total(await pair.relay.metricsText(), 'bot_relay_requests_total', { status: '200', code });
      const before = await counted();
      const { answer, line } = await answerTo(bytes);
      expectErrorEvent(answer, status, code, members);
      expect(answer.headers['retry-after']).toBeUndefined();
      expect(line).toMatchObject({ level, outcome: code, status: 200 });
      expect(await counted()).toBe(before + 1);
      // A connection that was kept would get the next message.
      if (code === 'upstream_bad_response')
        await until(() => pair.upstream.sockets.every((one) => one.destroyed));
    });

    test('has its status if it is a resumption, which is final for clients in the field', async () => {
      const { answer, line } = await answerTo(bytes, ['Last-Event-ID: 7']);
      expect(answer.status).toBe(status);
      expect(JSON.parse(answer.body)).toMatchObject({ code, status, ...members });
      expect(line).toMatchObject({ level, outcome: code, status });
    });
  },
);

test('the log says what came instead of a stream', async () => {
  const causes: unknown[] = [];
  for (const bytes of [
    plainAnswer('200 OK', [`Content-Type: text/${CANARY.key}`], 'x'),
    plainAnswer('500 No', [`Content-Type: a/b;x=${CANARY.key}`], 'x'),
    chunked('200 OK', [STREAM_TYPE, 'Content-Encoding: br'], 'x'),
    '220 ESMTP\r\n',
  ])
    causes.push((await answerTo(bytes)).line.cause);
  expect(causes).toEqual([
    ...['status 200, text/[secret]', 'status 500, a/b', 'status 200, text/event-stream, encoded'],
    'HTTPParserError',
  ]);
});

test.each([301, 307])('a redirect with %d is no answer, and its target is not called', async (status) => {
  const other = await startRawUpstream(() => {});
  const { answer } = await answerTo(
    chunked(`${status} Elsewhere`, [STREAM_TYPE, `Location: ${other.url}/leak`], 'data: leak\n\n'),
  );
  expectErrorEvent(answer, 502, 'upstream_bad_response', { maybeStarted: true, upstreamStatus: status });
  expect(answer.headers.location).toBeUndefined();
  expect(other.sockets).toEqual([]);
  await other.close();
});

const LEAKING = [
  ...['Set-Cookie: leak=1; Path=/', 'Set-Cookie: leak=2', 'Server: leak/1.0', 'X-Powered-By: leak'],
  ...['Alt-Svc: h3=":443"; leak=1', 'Connection: keep-alive, leak', 'Keep-Alive: timeout=77, max=leak'],
  ...['Strict-Transport-Security: max-age=1; leak', 'Access-Control-Allow-Origin: https://leak.example'],
  ...['Access-Control-Allow-Credentials: leak', 'WWW-Authenticate: Basic realm="leak"'],
  ...['Cache-Control: public, leak', 'X-Request-Id: leak-leak-leak', 'Trailer: X-Leaking-Trailer'],
];
/** Headers that the relay itself does not send either. */
const ABSENT =
  /^(set-cookie|server|alt-svc|strict-transport-security|access-control-.*|www-authenticate|content-(length|encoding)|trailer|x-powered-by|x-trace-id):/im;

describe('a stream', () => {
  test.each(['Text/Event-Stream', '  text/event-stream ;  charset="UTF-8"'])(
    'may have the type "%s"',
    async (type) => {
      const { text, answer } = await answerTo(chunked('200 OK', [`Content-Type: ${type}`], EVENT));
      expect([answer.status, answer.headers['content-type']]).toEqual([200, type.trim()]);
      expect(dechunk(text)).toMatchObject({ body: EVENT, complete: true });
    },
  );

  test.each([
    [
      'no trailers',
      chunked('200 Leak', [STREAM_TYPE, ...LEAKING], EVENT)
        .toString('latin1')
        .replace(/0\r\n\r\n$/, '0\r\nX-Leaking-Trailer: leak\r\n\r\n'),
    ],
    ['not its length', plainAnswer('200 OK', [STREAM_TYPE], EVENT)],
    ['no coding that changes nothing', chunked('200 OK', [STREAM_TYPE, 'Content-Encoding: Identity'], EVENT)],
    [
      'no coding in another case',
      chunked('200 OK', [STREAM_TYPE], EVENT).toString('latin1').replace('chunked', 'Chunked'),
    ],
    ['no trace that names a key', chunked('200 OK', [STREAM_TYPE, `X-Trace-Id: a-${CANARY.key}`], EVENT)],
  ])(
    'has none of the headers of the service but its type, and %s; nobody buffers it',
    async (_what, bytes) => {
      const { text, answer } = await answerTo(bytes, ['Accept-Encoding: gzip, br']);
      expect(dechunk(text)).toMatchObject({ body: EVENT, complete: true });
      expect(text).toMatch(/^HTTP\/1\.1 200 OK\r\n/);
      expect(text.slice(0, text.indexOf('\r\n\r\n'))).not.toMatch(ABSENT);
      expect(text).not.toMatch(/timeout=77/);
      expect(answer.headers).toMatchObject({
        ...{ 'cache-control': 'no-cache, no-transform', 'x-accel-buffering': 'no' },
        'content-type': 'text/event-stream',
      });
    },
  );

  test('has the X-Trace-Id of the service', async () => {
    const { answer } = await answerTo(chunked('200 OK', [STREAM_TYPE, 'X-Trace-Id: trace-1'], EVENT));
    expect(answer.headers['x-trace-id']).toBe('trace-1');
  });
});

describe('with a relay of its own,', () => {
  let own: RelayAndUpstream;
  afterEach(async () => {
    jest.restoreAllMocks();
    await own.close();
  });

  const NOW = 1_800_000_000_000;
  test.each([
    ['17 seconds', 'Retry-After: 17', 17],
    ['nonsense', 'Retry-After: soon', 1],
    ['zero', 'Retry-After: 0', 1],
    ['a date', `Retry-After: ${new Date(NOW + 45_000).toUTCString()}`, 45],
    ['a date in the past', 'Retry-After: Wed, 21 Oct 2015 07:28:00 GMT', 1],
    ['a year', 'Retry-After: 31536000', 60],
  ])(
    'a message that is answered with 429 and %s is told to wait, at most a minute',
    async (_name, header, retryAfter) => {
      const busy = plainAnswer('429 Busy', [JSON_TYPE, header], '{"leak":1}');
      jest.spyOn(Date, 'now').mockReturnValue(NOW);
      own = await startRelayAndUpstream((socket) => socket.end(busy), { RATE_MAX_WAIT_MS: '0' });
      const client = own.ask({ headers: ['Connection: close'] });
      await client.closed;
      const members = { retryable: 'new message', retryAfter } as const;
      expectErrorEvent(parseAnswer(client.text()), 429, 'upstream_rate_limited', members);
      expect(client.text()).not.toContain('leak');
    },
  );

  const TIMEOUT_MS = 87_654;
  /** Sends a message to a service that answers with `bytes`; resolves when the relay has read them. */
  async function ask(bytes: string) {
    const timeIsOver = holdTimers(TIMEOUT_MS);
    const answered = Promise.withResolvers<Socket>();
    own = await startRelayAndUpstream((socket) => void socket.write(bytes, () => answered.resolve(socket)), {
      UPSTREAM_RESPONSE_TIMEOUT_MS: String(TIMEOUT_MS),
    });
    const answer = own.relay.send(own.cookie);
    const socket = await answered.promise;
    // Once a later request is served, they have arrived.
    await call(own.relay.port, '/healthz');
    return { timeIsOver, answer, socket };
  }

  test.each([
    ['nothing', ''],
    ['half of its headers', 'HTTP/1.1 200 OK\r\nContent-Type: text/event-'],
    ['only an interim response', 'HTTP/1.1 103 Early Hints\r\nLink: </leak>\r\n\r\n'],
    [
      'the body of a refusal too slowly',
      `HTTP/1.1 422 No\r\n${JSON_TYPE}\r\nContent-Length: 8000\r\n\r\n{"leak":"`,
    ],
  ])('a service that sends %s times out, and its request is aborted', async (_name, bytes) => {
    const { timeIsOver, answer, socket } = await ask(bytes);
    timeIsOver();
    const text = await (await answer).text();
    expect(errorEventIn(text)).toMatchObject({ status: 504, code: 'upstream_timeout', maybeStarted: true });
    expect(text).not.toMatch(new RegExp(`http|127\\.0\\.0\\.1|leak|${own.upstream.port}`));
    expectNoCanary(text);
    await until(() => socket.destroyed);
    expect(own.upstream.requests).toHaveLength(1);
  });

  test('a service that answered in time may be silent for longer than that', async () => {
    const { timeIsOver, answer, socket } = await ask(
      `HTTP/1.1 200 OK\r\n${STREAM_TYPE}\r\n${CHUNKED}\r\n\r\n`,
    );
    const response = await answer;
    timeIsOver();
    socket.write(Buffer.concat([chunk('data: late\n\n'), Buffer.from(LAST_CHUNK)]));
    expect(await response.text()).toBe('data: late\n\n');
  });

  test('a message that has not left keeps the status of its refusal', async () => {
    own = await startRelayAndUpstream(() => {});
    const statuses: number[] = [];
    for (const init of [{ body: '{"half":' }, { path: '/generic/ns/acme/bot-provider/none/message/sse' }])
      statuses.push((await own.relay.send(own.cookie, init)).status);
    statuses.push((await own.relay.send('')).status);
    await own.upstream.close();
    statuses.push((await own.relay.send(own.cookie)).status);
    expect(statuses).toEqual([400, 404, 401, 502]);
  });
});

describe('an end before the answer', () => {
  const BODY = '{"text":"hi"}';
  let pair: RelayAndUpstream;
  afterEach(async () => {
    jest.restoreAllMocks();
    await pair.close();
  });

  const logOut = () =>
    call(pair.relay.port, '/auth/logout', { method: 'POST', headers: { Cookie: pair.cookie } });
  const endAll = () => pair.relay.parts.open.endAll(new Problem('draining', 'Gone.', { retryAfter: 1 }));
  async function shutDown() {
    await pair.relay.close();
    pair.relay.close = async () => {};
  }

  describe('a message whose body is still arriving', () => {
    /** Sends a message except its last byte, and waits until the relay reads it. */
    async function unfinished(): Promise<RawClient> {
      pair = await startRelayAndUpstream(() => {});
      const head = rawMessage({ cookie: pair.cookie, body: BODY, headers: ['Expect: 100-continue'] });
      const client = rawClient(pair.relay.port, head.slice(0, -1));
      await client.waitFor('100 Continue');
      return client;
    }

    test.each([
      ['its session is signed out', logOut, 401, 'session_ended'],
      ['all messages were aborted', endAll, 503, 'draining'],
    ] as const)('is not sent upstream once %s', async (_why, end, status, code) => {
      const client = await unfinished();
      await end();
      client.socket.write(BODY.slice(-1));
      await client.waitFor('"requestId"');
      expectProblem(parseAnswer(client.text().slice(client.text().lastIndexOf('HTTP/1.1'))), status, code);
      expect(pair.upstream.sockets).toHaveLength(0);
      client.socket.destroy();
    });

    test('is no longer counted once its client has left', async () => {
      const client = await unfinished();
      expect(await pair.relay.openMessages()).toBe(1);
      client.socket.destroy();
      await pair.relay.logLine(({ outcome }) => outcome === 'client_closed');
      expect(await pair.relay.openMessages()).toBe(0);
    });
  });

  /** Sends a message; resolves once the bot service has received it. */
  async function sent(answer: (socket: Socket) => void = () => {}, environment: Record<string, string> = {}) {
    pair = await startRelayAndUpstream(answer, environment);
    const arrived = pair.upstream.nextRequest();
    const client = pair.ask({ headers: ['Connection: close'] });
    await arrived;
    return client;
  }

  describe('a message that was sent to the bot service', () => {
    test.each([
      ['the relay shuts down before it begins', '', shutDown, 'draining'],
      ['its session ends before it begins', '', logOut, 'session_ended'],
      [
        'it is aborted in the head of a stream',
        'HTTP/1.1 200 OK\r\nContent-Type: text/ev',
        endAll,
        'draining',
      ],
      [
        'it is aborted in a refusal',
        'HTTP/1.1 422 No\r\nContent-Type: application/json\r\nContent-Length: 99\r\n\r\n{',
        endAll,
        'draining',
      ],
    ])(
      'is answered, so that nobody sends it again, that its answer is lost when %s',
      async (_when, bytes, end, cause) => {
        const client = await sent((socket) => socket.write(bytes));
        // Once a later request is served, these bytes have arrived.
        await call(pair.relay.port, '/healthz');
        await end();
        await client.closed;
        const answer = parseAnswer(client.text());
        expectErrorEvent(answer, 502, 'answer_lost', { maybeStarted: true, retryable: false });
        expect(answer.headers['retry-after']).toBeUndefined();
        expect(client.text()).not.toContain('retryAfter');
        expect(pair.upstream.requests).toHaveLength(1);
        const line = await pair.relay.logLine(({ outcome }) => outcome === 'answer_lost');
        expect(line).toMatchObject({ level: 'warn', status: 200, cause });
      },
    );

    test.each([
      ['429', { RATE_MAX_WAIT_MS: '60000' }, ['Retry-After: 50']],
      [
        '401',
        {
          ...{ RATE_LIMIT: '1', RATE_WINDOW_MS: '60000', RATE_MAX_WAIT_MS: '60000' },
          UPSTREAM_API_KEYS: `${CANARY.key},${CANARY.secondKey}`,
        },
        [],
      ],
    ])(
      'and refused with %s is told that the relay shuts down, and that it may be sent again',
      async (status, environment, headers) => {
        const client = await sent(
          (socket) => socket.write(plainAnswer(`${status} No`, headers)),
          environment,
        );
        await until(() => pair.upstream.sockets[0]?.destroyed === true);
        endAll();
        await client.closed;
        expectErrorEvent(parseAnswer(client.text()), 503, 'draining', {
          retryable: 'new message',
          retryAfter: 1,
        });
        expect(pair.upstream.requests).toHaveLength(1);
      },
    );
  });

  const LEAVING: [name: string, leave: (socket: Socket) => unknown][] = [
    ['closes its connection', (socket) => socket.destroy()],
    ['ends its side of the connection', (socket) => socket.end()],
    ['resets its connection', (socket) => socket.resetAndDestroy()],
  ];
  const PLACES: [when: string, bytes: string | Buffer][] = [
    ['before the headers of the answer', ''],
    ['in the middle of the stream', Buffer.concat([Buffer.from(STREAM_HEAD), chunk('data: a\n\n')])],
    [
      'while a refusal is being read',
      'HTTP/1.1 400 No\r\nContent-Type: application/json\r\nContent-Length: 99\r\n\r\n{',
    ],
  ];

  describe.each(LEAVING)('a client that %s', (_name, leave) => {
    test.each(PLACES)('%s closes the upstream connection, and nothing of it is kept', async (when, bytes) => {
      // A run that nobody reads is over at once.
      const client = await sent((socket) => socket.write(bytes), { JOIN_GRACE_MS: '0' });
      if (when.includes('stream')) await client.waitFor('data: a\n\n');
      expect(await pair.relay.openMessages()).toBe(1);
      const closed = once(pair.upstream.sockets[0] as Socket, 'close');
      leave(client.socket);
      await closed;
      const line = await pair.relay.logLine(({ bot }) => bot === 'acme/helper');
      expect(line).toMatchObject({ outcome: 'client_closed', level: 'info' });
      await pair.relay.untilOpen(0);
      expect(pair.relay.logs.filter(({ level }) => level !== 'info' && level !== 'debug')).toEqual([]);
      expect(pair.upstream.sockets).toHaveLength(1);
    });
  });
});
