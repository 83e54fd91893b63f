import { afterEach, describe, expect, jest, test } from '@jest/globals';
import { OPERATION_GROUPS } from '../../../src/bots/bot.ts';
import { OPERATIONS } from '../../../src/relay/operations/operation-table.ts';
import { call, expectProblem } from '../../harness/clients/call.ts';
import { ask, operationAt, operationRequest } from '../../harness/clients/operation-requests.ts';
import { rawClient } from '../../harness/clients/raw-client.ts';
import { jsonAnswer } from '../../harness/clients/suspend.ts';
import { until } from '../../harness/clock/until.ts';
import { OTHER_USER } from '../../harness/relay/relay.ts';
import { type RelayAndUpstream, startRelayAndUpstream } from '../../harness/relay/relay-and-upstream.ts';
import { startWithSandboxes } from '../../harness/service/launched-sandboxes.ts';

const METADATA = operationAt('GET channel/metadata');
const FEEDBACK = operationAt('POST message/feedback');
const PROXIED = OPERATIONS.filter(({ carriedBy }) => carriedBy === 'proxy');
/** Whether it is the same when it is sent twice. */
const isSafeTwice = ({ method, path }: (typeof PROXIED)[number]) =>
  method === 'GET' || path === 'message/suspend';

let pair: RelayAndUpstream;
afterEach(async () => {
  jest.restoreAllMocks();
  await pair?.close();
});

/** Starts a service that answers nothing. */
const startSilent = async (environment: Record<string, string> = {}) => {
  pair = await startWithSandboxes(() => {}, { OPERATIONS: OPERATION_GROUPS.join(), ...environment });
};
const allArrived = (count: number) => until(() => pair.upstream.requests.length === count);
const allClosed = () => until(() => pair.upstream.sockets.every(({ destroyed }) => destroyed));

test('the removal of a conversation has 65 seconds, even if other operations have less', async () => {
  const removals = PROXIED.filter(({ leastTimeoutMs }) => leastTimeoutMs !== undefined);
  expect(removals.map(({ path, leastTimeoutMs }) => [path, leastTimeoutMs])).toEqual([
    ['channel', 65_000],
    ['channel/clear', 65_000],
  ]);
  await startSilent({ UPSTREAM_RESPONSE_TIMEOUT_MS: '100' });
  const answers = removals.map((removal) => ask(pair, removal));
  await allArrived(removals.length);
  // The others begin later, and are over sooner.
  const others = PROXIED.filter((operation) => !removals.includes(operation));
  for (const other of others) {
    const { status, body } = await ask(pair, other);
    expect([status, JSON.parse(body)]).toEqual([504, expect.objectContaining({ code: 'upstream_timeout' })]);
  }
  for (const socket of pair.upstream.sockets) socket.write(jsonAnswer('200 OK', {}));
  for (const { status } of await Promise.all(answers)) expect(status).toBe(200);
});

describe('an operation that is under way', () => {
  test('ends with its session', async () => {
    await startSilent();
    const answers = PROXIED.map((operation) => ask(pair, operation));
    await allArrived(PROXIED.length);
    const logout = { method: 'POST', headers: { Cookie: pair.cookie } };
    expect((await call(pair.relay.port, '/auth/logout', logout)).status).toBe(204);
    for (const [at, answer] of answers.entries()) {
      if (isSafeTwice(PROXIED[at] ?? METADATA)) expectProblem(await answer, 401, 'session_ended');
      else expectProblem(await answer, 502, 'answer_lost', { maybeStarted: true, retryable: false });
    }
    const lost = pair.relay.logs.filter(({ outcome }) => outcome === 'answer_lost');
    expect(lost).toHaveLength(PROXIED.filter((operation) => !isSafeTwice(operation)).length);
    expect(new Set(lost.map(({ cause }) => cause))).toEqual(new Set(['session_ended']));
    await allClosed();
  });

  test('ends with the grace of a shutdown', async () => {
    await startSilent();
    const { relay, upstream, cookie } = await startRelayAndUpstream(() => {});
    const answers = [METADATA, FEEDBACK].map((operation) => ask({ ...pair, relay, cookie }, operation));
    await until(() => upstream.requests.length === 2);
    const closed = relay.close();
    const [metadata, feedback] = await Promise.all(answers);
    expectProblem(metadata ?? fail(), 503, 'draining', { retryable: 'new message' });
    // A load balancer would send it again after 503.
    expectProblem(feedback ?? fail(), 502, 'answer_lost', { retryable: false, maybeStarted: true });
    await closed;
    await upstream.close();
  });

  test('is no open message, and does not extend its session', async () => {
    await startSilent();
    const writes = (['set', 'extend', 'remove'] as const).map((name) =>
      jest.spyOn(pair.relay.sessions, name),
    );
    const answers = PROXIED.map((operation) => ask(pair, operation));
    await allArrived(PROXIED.length);
    expect(pair.relay.open.count()).toBe(0);
    for (const socket of pair.upstream.sockets) socket.write(jsonAnswer('200 OK', {}));
    for (const { status } of await Promise.all(answers)) expect(status).toBe(200);
    for (const write of writes) expect(write).not.toHaveBeenCalled();
  });
});

describe('the client of an operation leaves', () => {
  const BODY = '{"customChannelId":"c1"}';
  const raw = (body: string) => {
    const { method, path } = operationRequest(FEEDBACK);
    const head = [`${method} ${path} HTTP/1.1`, 'Host: app.example.com', `Cookie: ${pair.cookie}`];
    const length = ['Content-Type: application/json', `Content-Length: ${BODY.length}`];
    return rawClient(pair.relay.port, `${[...head, ...length].join('\r\n')}\r\n\r\n${body}`);
  };
  const left = () => pair.relay.logLine(({ outcome }) => outcome === 'client_closed');

  test('while it sends its body', async () => {
    await startSilent();
    const client = raw('{"customChannelId":');
    await call(pair.relay.port, '/auth/session', { headers: { Cookie: pair.cookie } });
    client.socket.destroy();
    expect(await left()).toMatchObject({ status: 499, bot: 'acme/helper' });
    expect(pair.upstream.sockets).toEqual([]);
  });

  test('while it waits for its slot, which it gives back', async () => {
    await startSilent({ RATE_LIMIT: '1', RATE_WINDOW_MS: '30000', RATE_MAX_WAIT_MS: '60000' });
    const reserve = jest.spyOn(pair.relay.budgets, 'reserve');
    const cancel = jest.spyOn(pair.relay.budgets, 'cancel');
    const client = raw(BODY);
    await allArrived(1);
    const second = raw(BODY);
    await until(() => reserve.mock.results.length === 2);
    await reserve.mock.results[1]?.value;
    second.socket.destroy();
    expect(await left()).toMatchObject({ status: 499, slotWaitMs: expect.any(Number) });
    await until(() => cancel.mock.calls.length === 1);
    expect(pair.upstream.requests).toHaveLength(1);
    client.socket.destroy();
  });
});

test('each path has a budget of its own, which both shapes share', async () => {
  // The second message has the same bytes as the first one.
  const alone = { JOIN: 'off' };
  await startSilent({ ...alone, RATE_LIMIT: '1', RATE_WINDOW_MS: '60000', RATE_MAX_WAIT_MS: '0' });
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

test('a user has at most 32 operations under way; suspends and other users are not held up', async () => {
  pair = await startRelayAndUpstream(() => {});
  const { requests, sockets } = pair.upstream;
  const hanging = Array.from({ length: 32 }, () => ask(pair, METADATA));
  await until(() => requests.length === 32);
  expectProblem(await ask(pair, METADATA), 429, 'too_many_streams', { retryable: 'new message' });
  const other = { headers: { Cookie: await pair.relay.signIn(OTHER_USER) } };
  hanging.push(ask(pair, operationAt('POST message/suspend')), ask(pair, METADATA, other));
  await until(() => requests.length === 34);
  for (const socket of sockets) socket.write(jsonAnswer('200 OK', {}));
  for (const { status } of await Promise.all(hanging)) expect(status).toBe(200);
  // The places are free again.
  const next = ask(pair, METADATA);
  await until(() => requests.length === 35);
  for (const socket of sockets) if (!socket.destroyed) socket.write(jsonAnswer('200 OK', {}));
  expect((await next).status).toBe(200);
});

function fail(): never {
  throw new Error('there is no answer');
}
