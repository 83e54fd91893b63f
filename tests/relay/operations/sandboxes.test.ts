import type { Socket } from 'node:net';
import { afterEach, describe, expect, jest, test } from '@jest/globals';
import type { ProblemCode } from '../../../src/errors.ts';
import { KNOWN_MS, knownSandboxes, launchedSandboxes } from '../../../src/guard/sandboxes.ts';
import { OPERATIONS } from '../../../src/relay/operations/operation-table.ts';
import { expectProblem } from '../../harness/clients/call.ts';
import { openKind, WATCH as WATCH_KIND } from '../../harness/clients/live.ts';
import { ask, operationAt } from '../../harness/clients/operation-requests.ts';
import { questionStage } from '../../harness/clients/question-stage.ts';
import { jsonAnswer } from '../../harness/clients/suspend.ts';
import { advanceClocks } from '../../harness/clock/advance-clocks.ts';
import { holdTimers } from '../../harness/clock/hold-timers.ts';
import { until } from '../../harness/clock/until.ts';
import { CANARY, startRelay } from '../../harness/relay/relay.ts';
import { type RelayAndUpstream, startRelayAndUpstream } from '../../harness/relay/relay-and-upstream.ts';
import { isQuestion, launched } from '../../harness/service/launched-sandboxes.ts';
import {
  chunk,
  plainAnswer,
  type RawRequest,
  STREAM_HEAD,
  startRawUpstream,
} from '../../harness/service/raw-upstream.ts';

const LIST = operationAt('GET sandbox/:sandbox/fs/list');
const ROWS = OPERATIONS.filter(({ group }) => group === 'sandbox').map((row) => ({
  row,
  line: `${row.method} ${row.path}`,
}));

const stage = questionStage();
const { inChannel, use, questions, others } = stage;
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
    expect(stage.pair.upstream.requests).toEqual([]);
  });

  test.each(['%', '%ff', '%c0%ae'])('%s is no path', async (name) => {
    expectProblem(await use(name), 404, 'not_found');
    expect(stage.pair.upstream.requests).toEqual([]);
  });

  test('is a segment of letters, digits, `_` and `-`', async () => {
    const name = `A0_-${'z'.repeat(124)}`;
    stage.tell = (socket) => void socket.end(launched(name));
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
    stage.tell = (socket) => void socket.end(launched('other'));
    expectProblem(await inChannel(row), 403, 'not_your_conversation', { retryable: false });
    expect(others()).toEqual([]);
    stage.tell = (socket) => void socket.end(launched('one'));
    const { status } = await inChannel(row);
    // The answer is no event stream.
    expect(status).toBe(row.carriedBy === 'live' ? 502 : 200);
    expect(questions()).toHaveLength(2);
    expect(others()).toHaveLength(1);
    const ids = stage.pair.upstream.requests.map(idIn);
    expect(new Set(ids)).toEqual(new Set([expect.stringMatching(/^[0-9a-f]{64}$/)]));
  });
});

/** The answer of the service to the question, and what becomes of the request, which has not left. */
const FAILING: [
  what: string,
  answer: string,
  status: number,
  code: ProblemCode,
  retryable?: 'new message' | false,
][] = [
  ['400', jsonAnswer('400 Bad Request', {}), 502, 'upstream_bad_response'],
  ['302', plainAnswer('302 Found', ['Location: /login']), 502, 'upstream_bad_response'],
  ['500', plainAnswer('500 Oh', []), 502, 'upstream_bad_response'],
  ['404 alone', plainAnswer('404 No', []), 502, 'upstream_bad_response'],
  [
    '404 in HTML',
    plainAnswer('404 No', ['Content-Type: text/html'], '<h1>Hello</h1>'),
    502,
    'upstream_bad_response',
  ],
  [
    '404 with broken JSON',
    plainAnswer('404 No', ['Content-Type: application/json'], '{'),
    502,
    'upstream_bad_response',
  ],
  ['404 in an encoding', jsonAnswer('404 No', {}, ['Content-Encoding: gzip']), 502, 'upstream_bad_response'],
  [
    '200 in HTML',
    plainAnswer('200 OK', ['Content-Type: text/html'], '<h1>Hello</h1>'),
    502,
    'upstream_bad_response',
  ],
  ['no HTTP', 'nonsense\r\n\r\n', 502, 'upstream_bad_response'],
  ['403', plainAnswer('403 No', []), 403, 'upstream_refused'],
  ['429', jsonAnswer('429 Busy', {}, ['Retry-After: 7']), 429, 'upstream_rate_limited', 'new message'],
  ['nothing', '', 502, 'upstream_unreachable', 'new message'],
  [
    'half of a body',
    'HTTP/1.1 404 No\r\nContent-Type: application/json\r\nContent-Length: 99\r\n\r\n{}',
    ...([502, 'upstream_unreachable', 'new message'] as const),
  ],
];

describe('the answer of the service to the question', () => {
  test.each([
    ['no such conversation', jsonAnswer('404 Not Found', { error: 'none' })],
    ['no sandboxes', jsonAnswer('200 OK', { data: { title: 'x' } })],
    ['a text', jsonAnswer('200 OK', { data: { launchedSandboxes: 'one' } })],
    ['names alone', jsonAnswer('200 OK', { data: { launchedSandboxes: ['one'] } })],
    ['an object', jsonAnswer('200 OK', { launchedSandboxes: { sandboxName: 'one' } })],
    ['another member', jsonAnswer('200 OK', { launchedSandboxes: [{ sandboxBlueprintName: 'one' }] })],
    ['JSON that is no object', jsonAnswer('200 OK', ['one'])],
  ])('names no sandbox if it is %s', async (_what, answer) => {
    stage.tell = (socket) => void socket.write(answer);
    expectProblem(await use('one'), 403, 'not_your_conversation');
    expect(others()).toEqual([]);
  });

  test.each(FAILING)(
    'lets nothing pass if it is %s',
    async (_what, answer, status, code, retryable = false) => {
      stage.tell = (socket) => void socket.end(answer);
      const refused = await use('one', {}, operationAt('POST sandbox/:sandbox/fs/mkdir'));
      expectProblem(refused, status, code, { retryable } as object);
      expect(refused.headers['retry-after']).toBe(code === 'upstream_rate_limited' ? '7' : undefined);
      expect(others()).toEqual([]);
    },
  );

  test('is closed if it is larger than metadata can be', async () => {
    stage.tell = (socket) => {
      socket.write('HTTP/1.1 404 Not Found\r\nContent-Type: application/json\r\n\r\n"');
      const more = setInterval(() => socket.write('x'.repeat(1 << 18)), 1);
      socket.once('close', () => clearInterval(more));
    };
    expectProblem(await use('one'), 502, 'upstream_bad_response');
    expect(others()).toEqual([]);
  });

  test('is its last status, and none before that', async () => {
    stage.tell = (socket) => void socket.write(`HTTP/1.1 103 Early Hints\r\n\r\n${launched('one')}`);
    expect((await use('one')).status).toBe(200);
  });
});

describe('with a relay of its own, the question', () => {
  let own: RelayAndUpstream;
  afterEach(async () => {
    jest.restoreAllMocks();
    await own.close();
  });
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
      if (isQuestion(request)) stage.tell(socket, request);
      else socket.write(STREAM_HEAD + chunk('data: 1\n\n'));
    });
    const relay = await startRelay(upstream.url, { OPERATIONS: 'sandbox' });
    const client = openKind({ relay, cookie: await relay.signIn() }, WATCH_KIND);
    await client.waitFor('data: 1');
    stage.tell = (socket) => void socket.end(answer);
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
