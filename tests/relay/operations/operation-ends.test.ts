import { afterEach, describe, expect, jest, test } from '@jest/globals';
import { OPERATION_GROUPS } from '../../../src/bots/bot.ts';
import { OPERATIONS } from '../../../src/relay/operations/operation-table.ts';
import { type Answer, call, expectProblem, parseAnswer } from '../../harness/clients/call.ts';
import { ask, operationAt, operationRequest } from '../../harness/clients/operation-requests.ts';
import { type RawClient, rawClient } from '../../harness/clients/raw-client.ts';
import { jsonAnswer, rawSuspend } from '../../harness/clients/suspend.ts';
import { until } from '../../harness/clock/until.ts';
import { describeWithRedis } from '../../harness/redis/redis.ts';
import { startInstances } from '../../harness/relay/instances.ts';
import { total } from '../../harness/relay/metric-samples.ts';
import { CANARY, OTHER_USER, type TestRelay } from '../../harness/relay/relay.ts';
import type { RelayAndUpstream } from '../../harness/relay/relay-and-upstream.ts';
import { startWithSandboxes } from '../../harness/service/launched-sandboxes.ts';
import { plainAnswer, type RawRequest, wholeStream } from '../../harness/service/raw-upstream.ts';

const METADATA = operationAt('GET channel/metadata');
const FEEDBACK = operationAt('POST message/feedback');
const SUSPEND = operationAt('POST message/suspend');
const MESSAGE = operationAt('POST message/sse');
const PROXIED = OPERATIONS.filter(({ carriedBy }) => carriedBy === 'proxy');
/** Whether it is the same when it is sent twice. */
const isSafeTwice = ({ method, path }: (typeof PROXIED)[number]) =>
  method === 'GET' || path === 'message/suspend';

let pair: RelayAndUpstream;
const clients: RawClient[] = [];
afterEach(async () => {
  jest.restoreAllMocks();
  for (const { socket } of clients.splice(0)) socket.destroy();
  await pair?.close();
});

type Serve = (request: RawRequest) => string | Buffer;
/** Takes every message, and gives each operation the answer for its key; `''` is none. */
const taking =
  (answerTo: (key: string | undefined) => string = () => ''): Serve =>
  (request) =>
    request.requestLine.includes('/message/sse') ? wholeStream('data: a\n\n') : answerTo(keyOf(request));
async function start(environment: Record<string, string> = {}, serve: Serve = taking()) {
  pair = await startWithSandboxes((socket, request) => void socket.write(serve(request)), {
    ...{ OPERATIONS: OPERATION_GROUPS.join(), ...environment },
  });
}
const keyOf = ({ all }: RawRequest) => all('x-api-key')[0];
const allArrived = (count: number) => until(() => pair.upstream.requests.length === count);
/** Lets the service answer all that it has been asked. */
const answerAll = () => {
  for (const socket of pair.upstream.sockets) if (!socket.destroyed) socket.write(jsonAnswer('200 OK', {}));
};
const logout = async () => {
  const { status } = await call(pair.relay.port, '/auth/logout', {
    ...{ method: 'POST', headers: { Cookie: pair.cookie } },
  });
  expect(status).toBe(204);
};
function opened(client: RawClient): RawClient {
  clients.push(client);
  return client;
}

test('the removal of a conversation has 65 seconds, even if other operations have less', async () => {
  const removals = PROXIED.filter(({ leastTimeoutMs }) => leastTimeoutMs !== undefined);
  expect(removals.map(({ path, leastTimeoutMs }) => [path, leastTimeoutMs])).toEqual([
    ['channel', 65_000],
    ['channel/clear', 65_000],
  ]);
  await start({ UPSTREAM_RESPONSE_TIMEOUT_MS: '100' });
  const answers = removals.map((removal) => ask(pair, removal));
  await allArrived(removals.length);
  // Other operations time out, although they began later.
  for (const other of [METADATA, FEEDBACK]) {
    const { status, body } = await ask(pair, other);
    expect([status, JSON.parse(body)]).toEqual([504, expect.objectContaining({ code: 'upstream_timeout' })]);
  }
  answerAll();
  for (const { status } of await Promise.all(answers)) expect(status).toBe(200);
});

describe('an operation that is under way', () => {
  test('ends with its session', async () => {
    await start();
    const answers = PROXIED.map((operation) => ask(pair, operation));
    await allArrived(PROXIED.length);
    await logout();
    for (const [at, answer] of answers.entries()) {
      if (isSafeTwice(PROXIED[at] ?? METADATA)) expectProblem(await answer, 401, 'session_ended');
      else expectProblem(await answer, 502, 'answer_lost', { maybeStarted: true, retryable: false });
    }
    const lost = pair.relay.logs.filter(({ outcome }) => outcome === 'answer_lost');
    expect(lost).toHaveLength(PROXIED.filter((operation) => !isSafeTwice(operation)).length);
    expect(new Set(lost.map(({ cause }) => cause))).toEqual(new Set(['session_ended']));
    await until(() => pair.upstream.sockets.every(({ destroyed }) => destroyed));
  });

  test('ends with the grace of a shutdown', async () => {
    await start();
    const answers = [METADATA, FEEDBACK].map((operation) => ask(pair, operation));
    await allArrived(2);
    const closed = pair.relay.close();
    const [metadata, feedback] = (await Promise.all(answers)) as [Answer, Answer];
    expectProblem(metadata, 503, 'draining', { retryable: 'new message' });
    // A load balancer would send it again after 503.
    expectProblem(feedback, 502, 'answer_lost', { retryable: false, maybeStarted: true });
    await closed;
  });

  test('is no open message, and does not extend its session', async () => {
    await start();
    const { sessionUses } = pair.relay;
    const writes = async () => (await sessionUses()) - (await sessionUses('get'));
    const before = await writes();
    const answers = PROXIED.map((operation) => ask(pair, operation));
    await allArrived(PROXIED.length);
    expect(await pair.relay.openMessages()).toBe(0);
    answerAll();
    for (const { status } of await Promise.all(answers)) expect(status).toBe(200);
    expect(await writes()).toBe(before);
  });

  test('is one of at most 32 of its user; suspends and other users are not held up', async () => {
    await start();
    const hanging = Array.from({ length: 32 }, () => ask(pair, METADATA));
    await allArrived(32);
    expectProblem(await ask(pair, METADATA), 429, 'too_many_streams', { retryable: 'new message' });
    const other = { headers: { Cookie: await pair.relay.signIn(OTHER_USER) } };
    hanging.push(ask(pair, SUSPEND), ask(pair, METADATA, other));
    await allArrived(34);
    answerAll();
    for (const { status } of await Promise.all(hanging)) expect(status).toBe(200);
    // The places are free again.
    const next = ask(pair, METADATA);
    await allArrived(35);
    answerAll();
    expect((await next).status).toBe(200);
  });
});

describeWithRedis('with several instances, an operation', () => {
  test('ends when its instance, which was cut off, learns that its session has ended at another one', async () => {
    const all = await startInstances({ count: 2, shared: true, wired: true });
    const [one, two] = all.relays as [TestRelay, TestRelay];
    const cookie = await one.signIn();
    const answers = [METADATA, FEEDBACK].map((row) => ask({ relay: two, cookie } as RelayAndUpstream, row));
    await until(() => all.upstream.requests.length === 2);
    all.wire?.cut();
    await two.logLine(({ msg }) => msg === 'redis lost');
    expect((await all.post(0, '/auth/logout', cookie)).status).toBe(204);
    all.wire?.mend();
    const [metadata, feedback] = (await Promise.all(answers)) as [Answer, Answer];
    expectProblem(metadata, 401, 'session_ended');
    expectProblem(feedback, 502, 'answer_lost', { maybeStarted: true, retryable: false });
    await until(() => all.upstream.sockets.every(({ destroyed }) => destroyed));
    await all.close();
  });
});

describe('while the session of a suspend is checked,', () => {
  /** Holds the next check of a session, after it has been read, until `release` is called. */
  function holdCheck() {
    const { sessions } = pair.relay.parts;
    const get = sessions.get.bind(sessions);
    const checked = Promise.withResolvers<void>();
    const released = Promise.withResolvers<void>();
    jest.spyOn(sessions, 'get').mockImplementationOnce(async (key) => {
      const session = await get(key);
      checked.resolve();
      await released.promise;
      return session;
    });
    return { checked: checked.promise, release: released.resolve };
  }

  test('it may end, and the suspend is refused', async () => {
    await start();
    const { checked, release } = holdCheck();
    const client = opened(rawClient(pair.relay.port, rawSuspend(pair)));
    await checked;
    await logout();
    release();
    await client.waitFor('}');
    expect(parseAnswer(client.text()).body).toContain('"unauthenticated"');
    expect(pair.upstream.requests).toEqual([]);
  });

  test('the client may leave, and no message is dropped', async () => {
    await start({ RATE_LIMIT: '1', RATE_WINDOW_MS: '1000', RATE_MAX_WAIT_MS: '60000' });
    await (await pair.relay.send(pair.cookie)).text();
    const waiting = pair.relay.send(pair.cookie);
    await pair.relay.untilOpen(1);
    const { checked, release } = holdCheck();
    const client = opened(rawClient(pair.relay.port, rawSuspend(pair)));
    await checked;
    client.socket.destroy();
    await pair.relay.logLine(({ outcome }) => outcome === 'client_closed');
    release();
    expect(await (await waiting).text()).toBe('data: a\n\n');
    expect(pair.upstream.requests).toHaveLength(2);
  });
});

describe('the client of an operation leaves', () => {
  const BODY = '{"customChannelId":"c1"}';
  const raw = (body: string) => {
    const { method, path } = operationRequest(FEEDBACK);
    const head = [`${method} ${path} HTTP/1.1`, 'Host: app.example.com', `Cookie: ${pair.cookie}`];
    const length = ['Content-Type: application/json', `Content-Length: ${BODY.length}`];
    return opened(rawClient(pair.relay.port, `${[...head, ...length].join('\r\n')}\r\n\r\n${body}`));
  };
  const left = () => pair.relay.logLine(({ outcome }) => outcome === 'client_closed');

  test('while it sends its body', async () => {
    await start();
    const client = raw('{"customChannelId":');
    await call(pair.relay.port, '/auth/session', { headers: { Cookie: pair.cookie } });
    client.socket.destroy();
    expect(await left()).toMatchObject({ status: 499, bot: 'acme/helper' });
    expect(pair.upstream.sockets).toEqual([]);
  });

  test('while it waits for its slot, which it gives back', async () => {
    await start({ RATE_LIMIT: '1', RATE_WINDOW_MS: '30000', RATE_MAX_WAIT_MS: '60000' });
    const reserve = jest.spyOn(pair.relay.parts.budgets, 'reserve');
    const cancel = jest.spyOn(pair.relay.parts.budgets, 'cancel');
    raw(BODY);
    await allArrived(1);
    const second = raw(BODY);
    await until(() => reserve.mock.results.length === 2);
    await reserve.mock.results[1]?.value;
    second.socket.destroy();
    expect(await left()).toMatchObject({ status: 499, slotWaitMs: expect.any(Number) });
    await until(() => cancel.mock.calls.length === 1);
    expect(pair.upstream.requests).toHaveLength(1);
  });
});

test('each path has a budget of its own, which both shapes share', async () => {
  // The second message has the same bytes as the first one.
  const alone = { JOIN: 'off' };
  await start({ ...alone, RATE_LIMIT: '1', RATE_WINDOW_MS: '60000', RATE_MAX_WAIT_MS: '0' }, () => '');
  // Others wait for their slot, however long that takes.
  const refused = OPERATIONS.filter(({ carriedBy }) => ['message', 'proxy'].includes(carriedBy));
  // The relay's own question, for the first sandbox, takes the slot of the metadata.
  const paths = [...new Set(refused.map(({ path }) => path))].filter((path) => path !== METADATA.path);
  const firsts = paths.map((path) => refused.find((operation) => operation.path === path) ?? METADATA);
  for (const [at, first] of firsts.entries()) {
    void ask(pair, first).catch(() => {});
    // A suspend drops a message that has not left yet.
    await allArrived(at + 1);
  }
  for (const operation of refused)
    for (const shape of ['/ns', '/generic/ns'] as const) {
      const answer = await ask(pair, operation, { shape });
      expectProblem(answer, 429, 'rate_limited', { retryable: 'new message' });
    }
  expect(pair.upstream.requests).toHaveLength(firsts.length);
});

describe('of two keys, the service', () => {
  const { key: first, secondKey: second } = CANARY;
  const TWO_KEYS = { UPSTREAM_API_KEYS: `${first},${second}` };
  const OK = jsonAnswer('200 OK', {});
  const NO = { 401: plainAnswer('401 No', []), 403: plainAnswer('403 No', []) };
  const keys = () => pair.upstream.requests.map(keyOf);

  test('may answer 403 to both, which says nothing about them: it may be about what the page asks for', async () => {
    await start(
      TWO_KEYS,
      taking(() => jsonAnswer('403 Forbidden', { error: 'no' })),
    );
    expectProblem(await ask(pair, FEEDBACK), 403, 'upstream_refused', { upstream: { error: 'no' } });
    await ask(pair, MESSAGE);
    expect(keys()).toEqual([first, second, first]);
    expect(pair.relay.logs).not.toContainEqual(expect.objectContaining({ msg: 'upstream key rejected' }));
  });

  test.each([401, 403] as const)(
    'may answer %d to the first one, and all use the other from then on',
    async (status) => {
      await start(
        TWO_KEYS,
        taking((key) => (key === first ? NO[status] : OK)),
      );
      expect((await ask(pair, FEEDBACK)).status).toBe(200);
      expect((await ask(pair, MESSAGE)).status).toBe(200);
      expect(keys()).toEqual([first, second, second]);
    },
  );

  test('may be gone after it has refused the first one, and has done nothing', async () => {
    await start(TWO_KEYS);
    const asked = ask(pair, FEEDBACK);
    await allArrived(1);
    pair.upstream.sockets[0]?.end(
      plainAnswer('401 No', ['Connection: close']),
      () => void pair.upstream.close(),
    );
    expectProblem(await asked, 502, 'upstream_unreachable', { retryable: 'new message' });
    expect(pair.upstream.requests).toHaveLength(1);
  });

  // A 403 counts as one when it comes, and as a rejected key when the other one is accepted.
  test.each([
    ['an operation', 401, 200, { key_rejected: 1, forbidden: 0 }],
    ['an operation', 401, 401, { key_rejected: 2, forbidden: 0 }],
    ['an operation', 403, 403, { key_rejected: 0, forbidden: 2 }],
    ['an operation', 403, 200, { key_rejected: 1, forbidden: 1 }],
    ['a message', 403, 200, { key_rejected: 1, forbidden: 1 }],
    ['a message', 401, 401, { key_rejected: 2, forbidden: 0 }],
  ] as const)('is counted for %s with %d and %d', async (what, one, other, counts) => {
    const good = what === 'a message' ? wholeStream('data: a\n\n') : OK;
    await start(TWO_KEYS, (request) => {
      const status = keyOf(request) === first ? one : other;
      return status === 200 ? good : NO[status];
    });
    await ask(pair, what === 'a message' ? MESSAGE : FEEDBACK);
    const text = await pair.relay.metricsText();
    const of = (outcome: string) => total(text, 'bot_relay_upstream_responses_total', { outcome });
    expect({ key_rejected: of('key_rejected'), forbidden: of('forbidden') }).toEqual(counts);
  });
});
