import { afterAll, expect, jest, test } from '@jest/globals';
import { OPERATION_GROUPS } from '../../../src/bots/bot.ts';
import { OPERATIONS } from '../../../src/relay/operations/operation-table.ts';
import { expectProblem, parseAnswer } from '../../harness/clients/call.ts';
import { ask, operationAt } from '../../harness/clients/operation-requests.ts';
import { rawClient } from '../../harness/clients/raw-client.ts';
import { jsonAnswer, rawSuspend } from '../../harness/clients/suspend.ts';
import { until } from '../../harness/clock/until.ts';
import { faultProxy } from '../../harness/faults/fault-proxy.ts';
import { describeWithRedis, startRedis } from '../../harness/redis/redis.ts';
import { type InstancesOptions, startInstances } from '../../harness/relay/instances.ts';
import type { TestRelay } from '../../harness/relay/relay.ts';
import { type RelayAndUpstream, startRelayAndUpstream } from '../../harness/relay/relay-and-upstream.ts';
import { wholeStream } from '../../harness/service/raw-upstream.ts';

// Those of sandboxes first ask whose a sandbox is, which this service does not answer.
const PROXIED = OPERATIONS.filter(({ carriedBy, group }) => carriedBy === 'proxy' && group !== 'sandbox');

// Each case has its own instances, so that the cases can wait side by side.
const closings: (() => Promise<void>)[] = [];
afterAll(() => Promise.all(closings.map((close) => close())));

/** Two instances, whose service begins answers and does not end them; all operations are under way at the second one. */
async function startAll(options: Omit<InstancesOptions, 'count' | 'shared' | 'environment'> = {}) {
  const environment = { OPERATIONS: OPERATION_GROUPS.join() };
  const all = await startInstances({ ...options, count: 2, shared: true, environment });
  closings.push(all.close);
  const [one, two] = all.relays as [TestRelay, TestRelay];
  const cookie = await one.signIn();
  const pair = { relay: two, cookie } as RelayAndUpstream;
  // A download has begun, and is cut.
  const answers = PROXIED.map((row) => ask(pair, row).then(({ body }) => body, String));
  await until(() => all.upstream.requests.length === PROXIED.length);
  return {
    ...{ two, wire: all.wire },
    logout: async () => expect((await all.post(0, '/auth/logout', cookie)).status).toBe(204),
    async expectEnded() {
      for (const [at, answer] of (await Promise.all(answers)).entries())
        expect(answer).toMatch(PROXIED[at]?.givesFile ? /aborted/ : /"code":"(session_ended|answer_lost)"/);
      await until(() => all.upstream.sockets.every(({ destroyed }) => destroyed));
    },
  };
}

describeWithRedis('with several instances, an operation', () => {
  test('ends when its session ends at another instance', async () => {
    const { logout, expectEnded } = await startAll();
    await logout();
    await expectEnded();
  });

  test('ends when its session expires', async () => {
    const { expectEnded } = await startAll({ limits: { idleMs: 2_500 } });
    await expectEnded();
  });

  test('ends when its instance, which was cut off, learns that its session has ended', async () => {
    const { two, wire, logout, expectEnded } = await startAll({ wired: true });
    wire?.cut();
    await two.logLine(({ msg }) => msg === 'redis lost');
    await logout();
    wire?.mend();
    await expectEnded();
  });
});

/** Holds the next check of a session at `relay`, after it has been read, until `release` is called. */
function holdCheck({ sessions }: TestRelay) {
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

async function startAlone(environment: Record<string, string> = {}) {
  const pair = await startRelayAndUpstream((socket, { requestLine }) => {
    socket.write(
      requestLine.includes('/message/sse') ? wholeStream('data: 1\n\n') : jsonAnswer('200 OK', {}),
    );
  }, environment);
  closings.push(pair.close);
  return pair;
}

describeWithRedis('a file that the service has taken', () => {
  test('is not to be sent again if Redis is lost before the answer', async () => {
    const redis = await startRedis();
    const wire = await faultProxy(redis.url);
    const pair = await startRelayAndUpstream(
      (socket) => {
        wire.cut();
        socket.write(jsonAnswer('200 OK', { blobId: 'b1' }));
      },
      { OPERATIONS: 'message,files', REDIS_URL: wire.url },
    );
    closings.push(pair.close, async () => wire.close(), redis.stop);
    const answer = await ask(pair, operationAt('POST blob'));
    expectProblem(answer, 502, 'answer_lost', { maybeStarted: true, retryable: false });
    expect(await pair.relay.logLine(({ outcome }) => outcome === 'answer_lost')).toMatchObject({
      cause: 'session_store_unavailable',
    });
  });
});

test('an operation whose session ends between its check and its beginning is refused', async () => {
  const pair = await startAlone();
  const { checked, release } = holdCheck(pair.relay);
  const client = rawClient(pair.relay.port, rawSuspend(pair));
  await checked;
  const logout = { method: 'POST', headers: { Cookie: pair.cookie } };
  expect((await fetch(`${pair.relay.url}/auth/logout`, logout)).status).toBe(204);
  release();
  await client.waitFor('}');
  expect(parseAnswer(client.text()).body).toContain('"unauthenticated"');
  client.socket.destroy();
  expect(pair.upstream.requests).toEqual([]);
});

test('a suspend whose client leaves while its session is checked drops no message', async () => {
  const pair = await startAlone({ RATE_LIMIT: '1', RATE_WINDOW_MS: '1000', RATE_MAX_WAIT_MS: '60000' });
  await (await pair.relay.send(pair.cookie)).text();
  const waiting = pair.relay.send(pair.cookie);
  await until(() => pair.relay.open.count() === 1);
  const { checked, release } = holdCheck(pair.relay);
  const client = rawClient(pair.relay.port, rawSuspend(pair));
  await checked;
  client.socket.destroy();
  await pair.relay.logLine(({ outcome }) => outcome === 'client_closed');
  release();
  expect(await (await waiting).text()).toBe('data: 1\n\n');
  expect(pair.upstream.requests).toHaveLength(2);
});
