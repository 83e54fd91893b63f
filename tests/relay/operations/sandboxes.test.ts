import type { Socket } from 'node:net';
import { afterAll, afterEach, beforeAll, beforeEach, describe, expect, jest, test } from '@jest/globals';
import { KNOWN_MS, knownSandboxes, launchedSandboxes } from '../../../src/guard/sandboxes.ts';
import { OPERATIONS } from '../../../src/relay/operations/operation-table.ts';
import { call, expectProblem } from '../../harness/clients/call.ts';
import { openKind, WATCH as WATCH_KIND } from '../../harness/clients/live.ts';
import { ask, operationAt, operationRequest } from '../../harness/clients/operation-requests.ts';
import { rawClient } from '../../harness/clients/raw-client.ts';
import { jsonAnswer } from '../../harness/clients/suspend.ts';
import { advanceClocks } from '../../harness/clock/advance-clocks.ts';
import { freePort } from '../../harness/relay/free-port.ts';
import { OTHER_USER, startRelay } from '../../harness/relay/relay.ts';
import {
  plainAnswer,
  type RelayAndUpstream,
  startRelayAndUpstream,
  until,
} from '../../harness/relay/relay-and-upstream.ts';
import { isQuestion, launched, SANDBOX_REQUEST } from '../../harness/service/launched-sandboxes.ts';
import { chunk, type RawRequest, STREAM_HEAD, startRawUpstream } from '../../harness/service/raw-upstream.ts';

const LIST = operationAt('GET sandbox/:sandbox/fs/list');
const WATCH = operationAt('GET sandbox/:sandbox/fs/watch');
const STAT = operationAt('GET sandbox/:sandbox/fs/stat');
const ROWS = OPERATIONS.filter(({ group }) => group === 'sandbox').map((row) => ({
  row,
  line: `${row.method} ${row.path}`,
}));

let pair: RelayAndUpstream;
/** What the service answers to the next questions. */
let tell: (socket: Socket, request: RawRequest) => void;
/** A conversation of its own for each test, since the relay remembers what it was told. */
let channel = 0;

beforeAll(async () => {
  pair = await startRelayAndUpstream(
    (socket, request) => {
      if (isQuestion(request)) tell(socket, request);
      else socket.write(jsonAnswer('200 OK', { entries: [] }));
    },
    // Without `chat`: the relay asks for itself.
    { OPERATIONS: 'sandbox', BOTS: 'acme/helper,acme/other' },
  );
});
afterAll(() => pair.close());
beforeEach(() => {
  channel += 1;
  pair.upstream.requests.length = 0;
  tell = (socket) => void socket.end(launched('one', 'two'));
});

const inChannel = (row = LIST, changes: Parameters<typeof ask>[2] = {}) =>
  ask(pair, row, { channel: `c${channel}`, ...changes });
/** Uses the sandbox with this name, as it stands in the path. */
const use = (name: string, changes: Parameters<typeof ask>[2] = {}, row = LIST) =>
  inChannel({ ...row, path: row.path.replace(':sandbox', name) }, changes);
const questions = () => pair.upstream.requests.filter(isQuestion);
const others = () => pair.upstream.requests.filter((request) => !isQuestion(request));
/** Lets the requests that have been sent get as far as they can without an answer. */
const allWait = async () => {
  for (let n = 0; n < 5; n += 1)
    await call(pair.relay.port, '/auth/session', { headers: { Cookie: pair.cookie } });
};
const idIn = ({ requestLine }: RawRequest) =>
  new URL(requestLine.split(' ')[1] ?? '', 'http://a').searchParams.get('custom_channel_id');

describe('the name of a sandbox', () => {
  test.each([
    ...[
      '..',
      '.',
      '...',
      '%2e%2e',
      'a.b',
      'a%2Fb',
      'a%5Cb',
      'one%2F..%2Ftwo',
      'a%00',
      '%20',
      'one%20',
      '-a',
      '_a',
    ],
    ...[
      '%C3%BC',
      '%EF%BC%91',
      'one%3Fx',
      'one%23',
      'one%26a',
      'one;a',
      '%25',
      '%252e',
      'x'.repeat(129),
      '%3Asandbox',
    ],
  ])('%s cannot be one', async (name) => {
    expectProblem(await use(name), 400, 'bad_request');
    expect(pair.upstream.requests).toEqual([]);
  });

  test.each(['%', '%ff', '%c0%ae'])('%s is no path', async (name) => {
    expectProblem(await use(name), 404, 'not_found');
    expect(pair.upstream.requests).toEqual([]);
  });

  test('is a segment of letters, digits, `_` and `-`', async () => {
    const name = `A0_-${'z'.repeat(124)}`;
    tell = (socket) => void socket.end(launched(name));
    expect((await use(name)).status).toBe(200);
    expect(others()[0]?.requestLine).toContain(`/sandbox/${name}/fs/list?`);
  });

  test('is compared exactly', async () => {
    expect((await use('one')).status).toBe(200);
    for (const name of ['One', 'on', 'one1', 'o%6Ee1'])
      expectProblem(await use(name), 403, 'not_your_conversation');
  });
});

describe.each(ROWS)('$line', ({ row }) => {
  test('reaches a sandbox that the conversation has launched, and no other one', async () => {
    tell = (socket) => void socket.end(launched('other'));
    expectProblem(await inChannel(row), 403, 'not_your_conversation', { retryable: false });
    expect(others()).toEqual([]);
    tell = (socket) => void socket.end(launched('one'));
    const { status } = await inChannel(row);
    // The answer is no event stream.
    expect(status).toBe(row.carriedBy === 'live' ? 502 : 200);
    expect(questions()).toHaveLength(2);
    expect(others()).toHaveLength(1);
    const ids = pair.upstream.requests.map(idIn);
    expect(new Set(ids)).toEqual(new Set([expect.stringMatching(/^[0-9a-f]{64}$/)]));
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
    const asked: Socket[] = [];
    tell = (socket) => void asked.push(socket);
    const answers = ['one', 'one', 'two', 'two', 'one'].map((name) => use(name));
    await until(() => asked.length === 1);
    // It is answered for nobody else.
    const other = use('one', { channel: `other${channel}` });
    await until(() => asked.length === 2);
    for (const socket of asked) socket.end(launched('one', 'two'));
    const statuses = (await Promise.all([...answers, other])).map(({ status }) => status);
    expect(statuses).toEqual([200, 200, 200, 200, 200, 200]);
    expect(questions()).toHaveLength(2);
  });

  test('is asked by the next one if its client leaves, and the client of a waiting one may leave, too', async () => {
    const asked: Socket[] = [];
    tell = (socket) => void asked.push(socket);
    const { path } = operationRequest(LIST, { channel: `c${channel}` });
    const head = [`GET ${path} HTTP/1.1`, 'Host: a', `Cookie: ${pair.cookie}`];
    const raw = (id: string) =>
      rawClient(pair.relay.port, [...head, `X-Request-Id: ${SANDBOX_REQUEST}${id}`, '', ''].join('\r\n'));
    const leaving = raw('leaves-first');
    await until(() => asked.length === 1);
    const waiting = raw('leaves-next');
    const staying = use('one');
    await call(pair.relay.port, '/auth/session', { headers: { Cookie: pair.cookie } });
    waiting.socket.destroy();
    await pair.relay.logLine(
      ({ requestId, status }) => requestId === `${SANDBOX_REQUEST}leaves-next` && status === 499,
    );
    expect(asked).toHaveLength(1);
    leaving.socket.destroy();
    await until(() => asked.length === 2);
    asked[1]?.end(launched('one'));
    expect((await staying).status).toBe(200);
  });

  test('is asked again by one of those who wait if its client leaves', async () => {
    const asked: Socket[] = [];
    tell = (socket) => void asked.push(socket);
    const { path } = operationRequest(LIST, { channel: `c${channel}` });
    const id = `X-Request-Id: ${SANDBOX_REQUEST}leaves`;
    const head = [`GET ${path} HTTP/1.1`, 'Host: a', `Cookie: ${pair.cookie}`, id, '', ''];
    const leaving = rawClient(pair.relay.port, head.join('\r\n'));
    await until(() => asked.length === 1);
    const staying = ['one', 'two', 'one', 'one'].map((name) => use(name));
    await allWait();
    leaving.socket.destroy();
    await until(() => asked.length === 2);
    await allWait();
    asked[1]?.end(launched('one', 'two'));
    for (const { status } of await Promise.all(staying)) expect(status).toBe(200);
    expect(asked).toHaveLength(2);
  });

  test('fails for all who wait for it', async () => {
    const asked: Socket[] = [];
    tell = (socket) => void asked.push(socket);
    const answers = ['one', 'one', 'two'].map((name) => use(name));
    await until(() => asked.length === 1);
    await allWait();
    asked[0]?.end(plainAnswer('500 Oh', []));
    for (const answer of await Promise.all(answers)) expectProblem(answer, 502, 'upstream_bad_response');
    expect(asked).toHaveLength(1);
  });

  test('is asked once more for those who came meanwhile and were not named', async () => {
    const asked: Socket[] = [];
    tell = (socket) => void asked.push(socket);
    const first = use('old');
    await until(() => asked.length === 1);
    const others = ['new', 'new', 'none', 'one'].map((name) => use(name));
    await allWait();
    asked[0]?.end(launched('one'));
    expectProblem(await first, 403, 'not_your_conversation');
    await until(() => asked.length === 2);
    await allWait();
    asked[1]?.end(launched('one', 'new'));
    const statuses = (await Promise.all(others)).map(({ status }) => status);
    expect(statuses).toEqual([200, 200, 403, 200]);
    expect(asked).toHaveLength(2);
  });

  test.each(['DELETE channel', 'POST channel/clear'])(
    'is asked anew after %s, also one that was under way',
    async (line) => {
      const relay = await startRelay(pair.upstream.url, { OPERATIONS: 'chat,sandbox' });
      const at = { ...pair, relay, cookie: await relay.signIn() };
      const path = LIST.path.replace(':sandbox', 'one');
      const useOne = () => ask(at, { ...LIST, path }, { channel: 'c' });
      const remove = async () =>
        expect((await ask(at, operationAt(line), { channel: 'c' })).status).toBe(200);
      expect((await useOne()).status).toBe(200);
      await remove();
      const asked: Socket[] = [];
      tell = (socket) => void asked.push(socket);
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
    for (const changes of [{ headers: { Cookie } }, { bot: 'other' }, { channel: 'x' }])
      expectProblem(await use('one', changes), 403, 'not_your_conversation');
    expect(questions()).toHaveLength(4);
    expect(new Set(questions().map(idIn)).size).toBe(3);
  });

  test.each([
    ['no such conversation', jsonAnswer('404 Not Found', { error: 'none' })],
    ['no sandboxes', jsonAnswer('200 OK', { data: { title: 'x' } })],
    ['a text', jsonAnswer('200 OK', { data: { launchedSandboxes: 'one' } })],
    ['names alone', jsonAnswer('200 OK', { data: { launchedSandboxes: ['one'] } })],
    ['an object', jsonAnswer('200 OK', { launchedSandboxes: { sandboxName: 'one' } })],
    ['another member', jsonAnswer('200 OK', { launchedSandboxes: [{ sandboxBlueprintName: 'one' }] })],
    ['JSON that is no object', jsonAnswer('200 OK', ['one'])],
  ])('answered with %s lets nothing pass', async (_what, answer) => {
    tell = (socket) => void socket.write(answer);
    expectProblem(await use('one'), 403, 'not_your_conversation');
    expect(others()).toEqual([]);
  });

  test.each([
    ['500', plainAnswer('500 Oh', []), 502, 'upstream_bad_response'],
    ['404 without JSON', plainAnswer('404 No', []), 502, 'upstream_bad_response'],
    ['403', plainAnswer('403 No', []), 403, 'upstream_refused'],
    ['429', plainAnswer('429 Busy', ['Retry-After: 3']), 429, 'upstream_rate_limited'],
    ['nothing', '', 502, 'upstream_unreachable'],
  ] as const)(
    'that fails with %s refuses the request, which has not left',
    async (_what, answer, status, code) => {
      tell = (socket) => void socket.end(answer);
      const refused = await use('one', {}, operationAt('POST sandbox/:sandbox/fs/mkdir'));
      expect([refused.status, JSON.parse(refused.body)]).toEqual([status, expect.objectContaining({ code })]);
      expect(JSON.parse(refused.body)).not.toHaveProperty('maybeStarted');
      expect(others()).toEqual([]);
    },
  );

  test.each([LIST, WATCH])('ends when the client of $path leaves, or its session', async (row) => {
    const asked: Socket[] = [];
    tell = (socket) => void asked.push(socket);
    const { path, headers } = operationRequest(row, { channel: `c${channel}` });
    const cookie = await pair.relay.signIn();
    const lines = Object.entries({ ...headers, Host: 'a', Cookie: cookie }).map((line) => line.join(': '));
    const raw = () => rawClient(pair.relay.port, [`GET ${path} HTTP/1.1`, ...lines, '', ''].join('\r\n'));
    const leaving = raw();
    await until(() => asked.length === 1);
    leaving.socket.destroy();
    await until(() => asked[0]?.destroyed === true);
    const staying = raw();
    await until(() => asked.length === 2);
    await call(pair.relay.port, '/auth/logout', { method: 'POST', headers: { Cookie: cookie } });
    await staying.waitFor('"code":"session_ended"');
    await until(() => asked[1]?.destroyed === true);
    expect(others()).toEqual([]);
    staying.socket.destroy();
  });

  test('to a service that is down refuses the request', async () => {
    const relay = await startRelay(`http://127.0.0.1:${await freePort()}`, { OPERATIONS: 'sandbox' });
    const { path } = operationRequest(LIST);
    const answer = await call(relay.port, path, { headers: { Cookie: await relay.signIn() } });
    expectProblem(answer, 502, 'upstream_unreachable', { retryable: 'new message' });
    await relay.close();
  });
});

describe('a watch of files', () => {
  afterEach(() => {
    jest.restoreAllMocks();
  });

  test.each([
    ['is cut when its conversation has the sandbox no more', launched(), true],
    ['is cut when the service does not say so', plainAnswer('500 Oh', []), true],
    ['goes on when there is no slot to ask', plainAnswer('429 Busy', ['Retry-After: 1']), false],
  ])('%s', async (_what, answer, isCut) => {
    let minute = () => {};
    const { setInterval: real } = globalThis;
    jest.spyOn(globalThis, 'setInterval').mockImplementation(((run: () => void, ms?: number) => {
      if (ms === KNOWN_MS) minute = run;
      return real(run, ms);
    }) as typeof setInterval);
    const upstream = await startRawUpstream((socket, request) => {
      if (isQuestion(request)) tell(socket, request);
      else socket.write(STREAM_HEAD + chunk('data: 1\n\n'));
    });
    const relay = await startRelay(upstream.url, { OPERATIONS: 'sandbox' });
    const client = openKind({ relay, cookie: await relay.signIn() }, WATCH_KIND);
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
});

describe('the metadata of a conversation', () => {
  test('names its sandboxes, alone or in `data`; other names are left out', () => {
    const list = [
      { sandboxName: 'a' },
      null,
      'b',
      { sandboxName: '../c' },
      { sandboxName: 1 },
      { sandboxName: 'd' },
    ];
    expect(launchedSandboxes({ launchedSandboxes: list })).toEqual(['a', 'd']);
    expect(launchedSandboxes({ data: { launchedSandboxes: list } })).toEqual(['a', 'd']);
    expect(
      launchedSandboxes(JSON.parse('{"__proto__":{"launchedSandboxes":[{"sandboxName":"a"}]}}')),
    ).toEqual([]);
    for (const none of [undefined, null, 1, [], {}, { data: null }])
      expect(launchedSandboxes(none)).toEqual([]);
  });
});

describe('a sandbox that is known', () => {
  test('is forgotten after a minute, also if it was used meanwhile', () => {
    let now = 0;
    const known = knownSandboxes(() => now);
    known.remember('c1', ['a']);
    now = KNOWN_MS - 1;
    expect([known.has('c1', 'a'), known.has('c1', 'b'), known.has('c2', 'a')]).toEqual([true, false, false]);
    now = KNOWN_MS;
    expect(known.has('c1', 'a')).toBe(false);
    expect(KNOWN_MS).toBe(60_000);
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
