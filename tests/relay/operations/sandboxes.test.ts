import type { Socket } from 'node:net';
import { afterAll, afterEach, beforeAll, beforeEach, describe, expect, jest, test } from '@jest/globals';
import type { ProblemCode } from '../../../src/errors.ts';
import { KNOWN_MS, knownSandboxes } from '../../../src/guard/sandboxes.ts';
import { OPERATIONS, type Operation } from '../../../src/relay/operations/operation-table.ts';
import { startBotService } from '../../../src/service/bot-service.ts';
import { call, expectProblem } from '../../harness/clients/call.ts';
import { openKind, WATCH as WATCH_KIND } from '../../harness/clients/live.ts';
import {
  ask,
  type OperationRequestChanges,
  operationAt,
  operationRequest,
} from '../../harness/clients/operation-requests.ts';
import { type RawClient, rawClient } from '../../harness/clients/raw-client.ts';
import { jsonAnswer } from '../../harness/clients/suspend.ts';
import { advanceClocks } from '../../harness/clock/advance-clocks.ts';
import { holdTimers } from '../../harness/clock/hold-timers.ts';
import { until } from '../../harness/clock/until.ts';
import { CANARY, OTHER_USER, startRelay } from '../../harness/relay/relay.ts';
import { type RelayAndUpstream, startRelayAndUpstream } from '../../harness/relay/relay-and-upstream.ts';
import { isQuestion, launched, SANDBOX_REQUEST } from '../../harness/service/launched-sandboxes.ts';
import {
  chunk,
  plainAnswer,
  type RawRequest,
  STREAM_HEAD,
  startRawUpstream,
  wholeStream,
} from '../../harness/service/raw-upstream.ts';

const LIST = operationAt('GET sandbox/:sandbox/fs/list');
const STAT = operationAt('GET sandbox/:sandbox/fs/stat');
const WATCH = operationAt('GET sandbox/:sandbox/fs/watch');
const OPEN_URL = operationAt('POST sandbox/:sandbox/browser/open-url');
const ROWS = OPERATIONS.filter(({ group }) => group === 'sandbox');

/** A relay without the group `chat`, which asks for itself. */
let pair: RelayAndUpstream;
/** What the service answers to the next questions which sandboxes a conversation has launched. */
let tell: (socket: Socket) => void;
/** A conversation of its own for each test, since the relay remembers what it was told. */
let channel = '';
const clients: RawClient[] = [];
beforeAll(async () => {
  pair = await startRelayAndUpstream(
    (socket, request) => {
      if (isQuestion(request)) tell(socket);
      else if (request.requestLine.includes('/fs/watch')) socket.write(wholeStream('data: 1\n\n'));
      else socket.write(jsonAnswer('200 OK', { entries: [] }));
    },
    { OPERATIONS: 'sandbox', BOTS: 'acme/helper,acme/other' },
  );
});
afterAll(() => pair.close());
beforeEach(() => {
  channel = `${channel}x`;
  pair.upstream.requests.length = 0;
  tell = (socket) => void socket.end(launched('one', 'two'));
});
afterEach(() => {
  jest.restoreAllMocks();
  for (const { socket } of clients.splice(0)) socket.destroy();
});

const inChannel = (row: Operation = LIST, changes: OperationRequestChanges = {}) =>
  ask(pair, row, { channel, ...changes });
/** Uses the sandbox with this name, as it stands in the path. */
const use = (name: string, changes: OperationRequestChanges = {}, row = LIST) =>
  inChannel({ ...row, path: row.path.replace(':sandbox', name) }, changes);
const questions = () => pair.upstream.requests.filter(isQuestion);
const others = () => pair.upstream.requests.filter((request) => !isQuestion(request));
const queryIn = ({ requestLine }: RawRequest) =>
  Object.fromEntries(new URL(requestLine.split(' ')[1] ?? '', 'http://a').searchParams);
const idIn = (request: RawRequest) => queryIn(request).custom_channel_id;
/** Lets the requests that have been sent get as far as they can without an answer. */
const allWait = async () => {
  for (let n = 0; n < 5; n += 1)
    await call(pair.relay.port, '/auth/session', { headers: { Cookie: pair.cookie } });
};
/** Leaves the next questions without an answer. */
function hold(): Socket[] {
  const asked: Socket[] = [];
  tell = (socket) => void asked.push(socket);
  return asked;
}
/** Asks over a connection of its own. */
function raw(row = LIST, id = 'raw-00001', cookie = pair.cookie): RawClient {
  const { path } = operationRequest(row, { channel });
  const head = [
    `GET ${path} HTTP/1.1`,
    'Host: a',
    `Cookie: ${cookie}`,
    `X-Request-Id: ${SANDBOX_REQUEST}${id}`,
  ];
  const client = rawClient(pair.relay.port, [...head, '', ''].join('\r\n'));
  clients.push(client);
  return client;
}

describe('the name of a sandbox', () => {
  test.each([
    ...['..', '...', '%2e%2e', 'a.b', 'a%2Fb', 'a%5Cb', 'one%2F..%2Ftwo', 'a%00', 'one%20', '-a', '_a'],
    ...['%C3%BC', '%EF%BC%91', 'one%3Fx', 'one%23', 'one;a', '%25', 'x'.repeat(129), '%3Asandbox'],
  ])('cannot be %s', async (name) => {
    expectProblem(await use(name), 400, 'bad_request');
    expect(pair.upstream.requests).toEqual([]);
  });

  test('is a segment of letters, digits, `_` and `-`, and is compared exactly', async () => {
    const name = `A0_-${'z'.repeat(124)}`;
    tell = (socket) => void socket.end(launched(name));
    expect((await use(name)).status).toBe(200);
    expect(others()[0]?.requestLine).toContain(`/sandbox/${name}/fs/list?`);
    for (const one of [name.slice(1), name.slice(0, -1), name.toLowerCase()])
      expectProblem(await use(one), 403, 'not_your_conversation');
  });
});

test.each(ROWS)(
  '$method $path reaches a sandbox that the conversation has launched, and no other one',
  async (row) => {
    tell = (socket) => void socket.end(launched('other'));
    expectProblem(await inChannel(row), 403, 'not_your_conversation', { retryable: false });
    expect(others()).toEqual([]);
    tell = (socket) => void socket.end(launched('one'));
    expect((await inChannel(row)).status).toBe(200);
    expect([questions().length, others().length]).toEqual([2, 1]);
    const ids = pair.upstream.requests.map(idIn);
    expect(new Set(ids)).toEqual(new Set([expect.stringMatching(/^[0-9a-f]{64}$/)]));
  },
);

describe('the query of an operation on a sandbox', () => {
  /** A value of each parameter that goes upstream, and those that do not. */
  const GOOD: Readonly<Record<string, readonly string[]>> = {
    path: ['/home/a b/ü.txt', '/', 'a'],
    src: ['/a'],
    dst: ['/b/..c/d..'],
    recursive: ['true', 'false'],
    overwrite: ['true'],
    create_only: ['true'],
    mode: ['0', '420', '4095'],
    offset_bytes: ['0', '123456789012345'],
    limit_bytes: ['1'],
  };
  const NO_PATHS = [
    ...['', '..', '/a/../b', '/..', 'a\\b', '/\0', '/%2e%2e/a', '/%252e%252e%2fa', '/a%5cb'],
    ...['/%c0%ae%c0%ae/', 'x'.repeat(1025)],
  ];
  const BAD: Readonly<Record<string, readonly string[]>> = {
    ...{ path: NO_PATHS, src: NO_PATHS, dst: NO_PATHS },
    ...{ recursive: ['1', 'TRUE', ''], overwrite: ['yes'], create_only: ['1'] },
    mode: ['-1', '0o644', '4096', '', '1e2', '99999'],
    offset_bytes: ['-1', '1.5', '', '1234567890123456'],
    limit_bytes: ['-1', 'x', '+1'],
  };
  /** Asks with `query` in the place of what a good request has, and `more` behind it. */
  const askWith = (row: Operation, query: Readonly<Record<string, string>>, more = '') => {
    const { path, method, headers, body } = operationRequest(row, { channel });
    const [target = '', search = ''] = path.split('?');
    const all = new URLSearchParams({ ...Object.fromEntries(new URLSearchParams(search)), ...query });
    return call(pair.relay.port, `${target}?${all}${more}`, {
      method,
      headers: { Cookie: pair.cookie, ...headers },
      ...(body !== undefined && { body }),
    });
  };

  test('passes what its row names, and nothing else', async () => {
    for (const row of ROWS)
      for (const [name, values] of Object.entries(GOOD))
        for (const value of values) {
          const answer = await askWith(row, { [name]: value, api_key: 'evil', editor: 'evil' });
          expect([row.path, name, value, answer.status]).toEqual([row.path, name, value, 200]);
          const { custom_channel_id: id, ...query } = queryIn(others().at(-1) as RawRequest);
          expect(id).toMatch(/^[0-9a-f]{64}$/);
          const isNamed = Object.hasOwn(row.query ?? {}, name);
          expect([row.path, query[name]]).toEqual([row.path, isNamed ? value : undefined]);
          expect(Object.keys(row.query ?? {})).toEqual(expect.arrayContaining(Object.keys(query)));
        }
  });

  test('is refused with a value that cannot be, one that is missing, or one that comes twice', async () => {
    for (const row of ROWS)
      for (const [name, { required }] of Object.entries(row.query ?? {})) {
        for (const value of BAD[name] ?? []) {
          const answer = await askWith(row, { [name]: value });
          expect([row.path, name, value, answer.status]).toEqual([row.path, name, value, 400]);
          expect(JSON.parse(answer.body)).toMatchObject({ code: 'invalid_query' });
        }
        const [good = ''] = GOOD[name] ?? [];
        expectProblem(
          await askWith(row, { [name]: good }, `&${name}=${encodeURIComponent(good)}`),
          ...([400, 'invalid_query'] as const),
        );
        const without = { ...row, query: { ...row.query, [name]: { pattern: /^/ } } };
        if (required) expectProblem(await inChannel(without), 400, 'invalid_query');
      }
    expect(pair.upstream.requests).toEqual([]);
  });

  test('of the address of its browser is none; the page sends no address', async () => {
    const url = { url: 'https://evil.example/', openURL: 'https://evil.example/' };
    expect((await askWith(OPEN_URL, url)).status).toBe(200);
    expect(Object.keys(queryIn(others()[0] as RawRequest))).toEqual(['custom_channel_id']);
    // Clients send the type of a body that they do not send.
    const typed = { 'Content-Type': 'application/json' };
    expect((await inChannel(OPEN_URL, { headers: typed })).status).toBe(200);
    const withBody = await inChannel(OPEN_URL, { headers: typed, body: '{"url":"https://evil.example/"}' });
    expectProblem(withBody, 413, 'body_too_large');
  });
});

describe('the answer of the service to the question', () => {
  test.each([
    ['no such conversation', jsonAnswer('404 Not Found', { error: 'none' })],
    ['no sandboxes', jsonAnswer('200 OK', { data: { title: 'x' } })],
    ['names alone', jsonAnswer('200 OK', { data: { launchedSandboxes: ['one', null] } })],
    ['an object', jsonAnswer('200 OK', { launchedSandboxes: { sandboxName: 'one' } })],
    ['another member', jsonAnswer('200 OK', { launchedSandboxes: [{ sandboxBlueprintName: 'one' }] })],
    ['JSON that is no object', jsonAnswer('200 OK', ['one'])],
  ])('names no sandbox if it is %s', async (_what, answer) => {
    tell = (socket) => void socket.write(answer);
    expectProblem(await use('one'), 403, 'not_your_conversation');
    expect(others()).toEqual([]);
  });

  test('names them alone or in `data`, in its last status', async () => {
    const names = { launchedSandboxes: [null, { sandboxName: 1 }, { sandboxName: 'one' }] };
    tell = (socket) => void socket.write(`HTTP/1.1 103 Early Hints\r\n\r\n${jsonAnswer('200 OK', names)}`);
    expect((await use('one')).status).toBe(200);
  });

  const BAD = [502, 'upstream_bad_response', false] as const;
  const GONE = [502, 'upstream_unreachable', 'new message'] as const;
  const json = ['Content-Type: application/json'];
  test.each<[string, string, number, ProblemCode, 'new message' | false]>([
    ['400', jsonAnswer('400 Bad Request', {}), ...BAD],
    ['302', plainAnswer('302 Found', ['Location: /login']), ...BAD],
    ['404 alone', plainAnswer('404 No', []), ...BAD],
    ['404 in HTML', plainAnswer('404 No', ['Content-Type: text/html'], '<h1>Hello</h1>'), ...BAD],
    ['404 with broken JSON', plainAnswer('404 No', json, '{'), ...BAD],
    ['404 in an encoding', jsonAnswer('404 No', {}, ['Content-Encoding: gzip']), ...BAD],
    ['200 in HTML', plainAnswer('200 OK', ['Content-Type: text/html'], '<h1>Hello</h1>'), ...BAD],
    ['no HTTP', 'nonsense\r\n\r\n', ...BAD],
    ['403', plainAnswer('403 No', []), 403, 'upstream_refused', false],
    ['429', jsonAnswer('429 Busy', {}, ['Retry-After: 7']), 429, 'upstream_rate_limited', 'new message'],
    ['nothing', '', ...GONE],
    [
      'half of a body',
      'HTTP/1.1 404 No\r\nContent-Type: application/json\r\nContent-Length: 99\r\n\r\n{}',
      ...GONE,
    ],
  ])('lets nothing pass if it is %s', async (_what, answer, status, code, retryable) => {
    tell = (socket) => void socket.end(answer);
    const refused = await use('one', {}, operationAt('POST sandbox/:sandbox/fs/mkdir'));
    expectProblem(refused, status, code, { retryable });
    expect(refused.headers['retry-after']).toBe(code === 'upstream_rate_limited' ? '7' : undefined);
    expect(others()).toEqual([]);
  });

  test('is closed if it is larger than metadata can be', async () => {
    tell = (socket) => {
      socket.write('HTTP/1.1 404 Not Found\r\nContent-Type: application/json\r\n\r\n"');
      const more = setInterval(() => socket.write('x'.repeat(1 << 18)), 1);
      socket.once('close', () => clearInterval(more));
    };
    expectProblem(await use('one'), 502, 'upstream_bad_response');
    expect(others()).toEqual([]);
  });
});

describe('the question which sandboxes a conversation has launched', () => {
  test('is for the metadata, in the shape of the request and with its key and id', async () => {
    const { headers } = operationRequest(LIST);
    await inChannel(LIST, { shape: '/generic/ns', headers: { ...headers, traceparent: '00-1-2-01' } });
    const [question] = questions();
    expect(question?.requestLine).toMatch(
      /^GET \/generic\/ns\/acme\/bot-provider\/helper\/channel\/metadata\?custom_channel_id=[0-9a-f]{64} /,
    );
    expect(question?.all('x-api-key')).toHaveLength(1);
    expect(question?.all('x-request-id')).toEqual([headers['X-Request-Id']]);
    expect(question?.all('traceparent')).toEqual(['00-1-2-01']);
    expect(question?.all('cookie')).toEqual([]);
  });

  test('is asked once a minute for all sandboxes of a conversation, by both shapes', async () => {
    for (const name of ['one', 'two'])
      for (const shape of ['/ns', '/generic/ns'] as const)
        expect((await use(name, { shape }, STAT)).status).toBe(200);
    expect(questions()).toHaveLength(1);
    // It may have been launched since.
    tell = (socket) => void socket.end(launched('one', 'three'));
    for (const name of ['three', 'one']) expect((await use(name)).status).toBe(200);
    expect(questions()).toHaveLength(2);
    // The last answer counts.
    expectProblem(await use('two'), 403, 'not_your_conversation');
  });

  test('is asked once for all requests that come meanwhile', async () => {
    const asked = hold();
    const answers = ['one', 'one', 'two', 'two', 'one'].map((name) => use(name));
    await until(() => asked.length === 1);
    // It is answered for nobody else.
    const other = use('one', { channel: `${channel}-other` });
    await until(() => asked.length === 2);
    for (const socket of asked) socket.end(launched('one', 'two'));
    for (const { status } of await Promise.all([...answers, other])) expect(status).toBe(200);
    expect(questions()).toHaveLength(2);
  });

  test('is asked again by one of those who wait if its client leaves; one of them may have left, too', async () => {
    const asked = hold();
    const leaving = raw();
    await until(() => asked.length === 1);
    const waiting = raw(LIST, 'leaves-next');
    const staying = ['one', 'two', 'one'].map((name) => use(name));
    await allWait();
    waiting.socket.destroy();
    await pair.relay.logLine(
      ({ requestId, status }) => requestId === `${SANDBOX_REQUEST}leaves-next` && status === 499,
    );
    expect(asked).toHaveLength(1);
    leaving.socket.destroy();
    await until(() => asked.length === 2);
    await allWait();
    asked[1]?.end(launched('one', 'two'));
    for (const { status } of await Promise.all(staying)) expect(status).toBe(200);
    expect(asked).toHaveLength(2);
  });

  test('fails for all who wait for it', async () => {
    const asked = hold();
    const answers = ['one', 'one', 'two'].map((name) => use(name));
    await until(() => asked.length === 1);
    await allWait();
    asked[0]?.end(plainAnswer('500 Oh', []));
    for (const answer of await Promise.all(answers)) expectProblem(answer, 502, 'upstream_bad_response');
    expect(asked).toHaveLength(1);
  });

  test('is asked once more for those who came meanwhile and were not named', async () => {
    const asked = hold();
    const first = use('old');
    await until(() => asked.length === 1);
    const later = ['new', 'new', 'none', 'one'].map((name) => use(name));
    await allWait();
    asked[0]?.end(launched('one'));
    expectProblem(await first, 403, 'not_your_conversation');
    await until(() => asked.length === 2);
    await allWait();
    asked[1]?.end(launched('one', 'new'));
    const statuses = (await Promise.all(later)).map(({ status }) => status);
    expect(statuses).toEqual([200, 200, 403, 200]);
    expect(asked).toHaveLength(2);
  });

  test.each(['DELETE channel', 'POST channel/clear'])(
    'is asked anew after %s, also one that was under way',
    async (line) => {
      const relay = await startRelay(pair.upstream.url, { OPERATIONS: 'chat,sandbox' });
      const at = { ...pair, relay, cookie: await relay.signIn() };
      const useOne = () => ask(at, LIST);
      const remove = async () => expect((await ask(at, operationAt(line))).status).toBe(200);
      expect((await useOne()).status).toBe(200);
      await remove();
      const asked = hold();
      const waiting = useOne();
      await until(() => asked.length === 1);
      await remove();
      asked[0]?.end(launched('one'));
      expect((await waiting).status).toBe(200);
      tell = (socket) => void socket.end(launched());
      expectProblem(await useOne(), 403, 'not_your_conversation');
      expect(questions()).toHaveLength(3);
      await relay.close();
    },
  );

  test('is asked anew for another user, another conversation and another bot', async () => {
    await use('one');
    tell = (socket) => void socket.end(launched());
    const Cookie = await pair.relay.signIn(OTHER_USER);
    for (const changes of [{ headers: { Cookie } }, { bot: 'other' }, { channel: 'z' }])
      expectProblem(await use('one', changes), 403, 'not_your_conversation');
    expect(questions()).toHaveLength(4);
    expect(new Set(questions().map(idIn)).size).toBe(3);
  });

  test.each([LIST, WATCH])('ends when the client of $path leaves, or its session', async (row) => {
    const asked = hold();
    const cookie = await pair.relay.signIn();
    const leaving = raw(row, 'raw-00002', cookie);
    await until(() => asked.length === 1);
    leaving.socket.destroy();
    await until(() => asked[0]?.destroyed === true);
    const staying = raw(row, 'raw-00003', cookie);
    await until(() => asked.length === 2);
    await call(pair.relay.port, '/auth/logout', { method: 'POST', headers: { Cookie: cookie } });
    await staying.waitFor('"code":"session_ended"');
    await until(() => asked[1]?.destroyed === true);
    expect(others()).toEqual([]);
  });

  describe('with a relay of its own', () => {
    let own: RelayAndUpstream;
    afterEach(() => own.close());
    const start = async (
      answer: (socket: Socket, request: RawRequest) => void,
      environment: Record<string, string>,
    ) => {
      own = await startRelayAndUpstream(
        (socket, request) => {
          if (isQuestion(request)) answer(socket, request);
          else socket.write(jsonAnswer('200 OK', { entries: [] }));
        },
        { OPERATIONS: 'sandbox', ...environment },
      );
    };

    test('that is not answered in time is a 504, and another try can help', async () => {
      const timeIsOver = holdTimers(87_654);
      const asked = Promise.withResolvers<Socket>();
      await start(
        (socket) => {
          socket.write('HTTP/1.1 404 No\r\nContent-Type: application/json\r\nContent-Length: 2\r\n\r\n{');
          asked.resolve(socket);
        },
        { UPSTREAM_RESPONSE_TIMEOUT_MS: '87654' },
      );
      const answer = ask(own, LIST);
      const socket = await asked.promise;
      timeIsOver();
      expectProblem(await answer, 504, 'upstream_timeout', { retryable: 'new message' });
      await until(() => socket.destroyed);
      expect(own.upstream.requests).toHaveLength(1);
    });

    test('tries the keys in their order, and the request follows with the one that worked, and with the user', async () => {
      const keys = [CANARY.key, `${CANARY.key}-2`];
      await start(
        (socket, request) =>
          void socket.write(
            request.all('x-api-key')[0] === keys[0] ? plainAnswer('401 Unauthorized', []) : launched('one'),
          ),
        { UPSTREAM_API_KEYS: keys.join(), USER_HEADER: 'X-User' },
      );
      expect((await ask(own, LIST)).status).toBe(200);
      const sent = own.upstream.requests.map(({ all }) => [all('x-api-key')[0], all('x-user')[0]]);
      expect(sent).toEqual([keys[0], keys[1], keys[1]].map((key) => [key, 'ada']));
    });

    test('has the budget of its path', async () => {
      const budget = { RATE_LIMIT: '1', RATE_WINDOW_MS: '60000', RATE_MAX_WAIT_MS: '0' };
      await start((socket) => void socket.end(launched('two')), budget);
      expectProblem(await ask(own, LIST), 403, 'not_your_conversation');
      expectProblem(await ask(own, LIST), 429, 'rate_limited', { retryable: 'new message' });
      expect(own.upstream.requests).toHaveLength(1);
    });
  });
});

test.each([
  ['is cut when its conversation has the sandbox no more', launched(), true],
  ['is cut when the service does not say so', plainAnswer('500 Oh', []), true],
  ['goes on when there is no slot to ask', plainAnswer('429 Busy', ['Retry-After: 1']), false],
])('a watch of files %s', async (_what, answer, isCut) => {
  let minute = () => {};
  const { setInterval: real } = globalThis;
  jest.spyOn(globalThis, 'setInterval').mockImplementation(((run: () => void, ms?: number) => {
    if (ms === KNOWN_MS) minute = run;
    return real(run, ms);
  }) as typeof setInterval);
  const upstream = await startRawUpstream((socket, request) => {
    if (isQuestion(request)) tell(socket);
    else socket.write(STREAM_HEAD + chunk('data: 1\n\n'));
  });
  const relay = await startRelay(upstream.url, { OPERATIONS: 'sandbox' });
  const client = openKind({ relay, cookie: await relay.signIn() }, WATCH_KIND);
  clients.push(client);
  await client.waitFor('data: 1');
  tell = (socket) => void socket.end(answer);
  // It is still known.
  minute();
  advanceClocks({ monotonic: KNOWN_MS });
  minute();
  await until(() => upstream.requests.filter(isQuestion).length === 2);
  if (isCut) await client.closed;
  else {
    await until(() => upstream.sockets.filter(({ destroyed }) => !destroyed).length === 1);
    for (const socket of upstream.sockets) if (!socket.destroyed) socket.write(chunk('data: 2\n\n'));
    await client.waitFor('data: 2');
  }
  client.socket.destroy();
  await relay.close();
  await upstream.close();
});

describe('a sandbox that is known', () => {
  test('is forgotten after a minute, also if it was used meanwhile', () => {
    let now = 0;
    const known = knownSandboxes(() => now);
    known.remember('c1', ['a']);
    now = 60_000 - 1;
    expect([known.has('c1', 'a'), known.has('c1', 'b'), known.has('c2', 'a')]).toEqual([true, false, false]);
    now = 60_000;
    expect(known.has('c1', 'a')).toBe(false);
  });

  test('is one of at most 64 of 1,000 conversations', () => {
    const known = knownSandboxes(() => 0);
    known.remember(
      'c',
      Array.from({ length: 65 }, (_, n) => `s${n}`),
    );
    expect([known.has('c', 's63'), known.has('c', 's64')]).toEqual([true, false]);
    for (let n = 0; n < 1_000; n += 1) known.remember(`c${n}`, ['a']);
    expect([known.has('c', 's0'), known.has('c0', 'a'), known.has('c999', 'a')]).toEqual([false, true, true]);
  });
});

test('a page works with the files of a sandbox of the demo, and another user has other ones', async () => {
  const speed = { wordMs: 0, silenceMs: 60_000 };
  const service = await startBotService({ keys: [CANARY.key], limit: 1000, speed });
  const relay = await startRelay(service.url, { BOTS: 'demo/*', OPERATIONS: 'message,chat,sandbox' });
  const base = '/ns/demo/bot-provider/echo';
  const asUser = async (user?: Parameters<typeof relay.signIn>[0]) => {
    const Cookie = await relay.signIn(user);
    return {
      say: async () => {
        const answer = await relay.send(Cookie, { path: `${base}/message/sse` });
        expect(await answer.text()).toContain('asgard.run.done');
      },
      use: (line: string, body?: FormData) => {
        const [method = '', target = ''] = line.split(' ');
        const url = `${relay.url}${base}/sandbox/demo/fs/${target}&custom_channel_id=c1`;
        return fetch(url, { method, headers: { Cookie }, ...(body && { body }) });
      },
    };
  };
  const { say, use } = await asUser();
  await say();
  const watch = await use('GET watch?path=/&recursive=true');
  const reader = watch.body?.pipeThrough(new TextDecoderStream()).getReader();
  const form = new FormData();
  form.append('file', new Blob(['hello']));
  expect((await use('PUT file?path=/a/b.txt&mode=420', form)).status).toBe(200);
  let seen = '';
  while (!seen.includes('/a/b.txt')) seen += (await reader?.read())?.value ?? '';
  await reader?.cancel();
  const piece = await use('GET file?path=/a/b.txt&offset_bytes=1&limit_bytes=3');
  expect([await piece.text(), piece.headers.get('x-total-bytes'), piece.headers.get('x-truncated')]).toEqual([
    ...['ell', '5', 'true'],
  ]);
  const other = await asUser(OTHER_USER);
  expect((await other.use('GET list?path=/')).status).toBe(403);
  await other.say();
  expect((await other.use('GET file?path=/a/b.txt')).status).toBe(404);
  await relay.close();
  await service.close();
});
