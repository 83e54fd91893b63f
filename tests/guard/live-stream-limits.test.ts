import { afterAll, afterEach, expect, jest, test } from '@jest/globals';
import { expectProblem, parseAnswer } from '../harness/clients/call.ts';
import {
  askLive,
  LIVE,
  openKind,
  openLive,
  openStream,
  type SignedIn,
  WATCH,
} from '../harness/clients/live.ts';
import type { RawClient } from '../harness/clients/raw-client.ts';
import { until } from '../harness/clock/until.ts';
import { describeWithRedis, startRedis, stopRedis } from '../harness/redis/redis.ts';
import { range } from '../harness/relay/numbered-messages.ts';
import { OTHER_USER, startRelay } from '../harness/relay/relay.ts';
import { type RelayAndUpstream, startRelayAndUpstream } from '../harness/relay/relay-and-upstream.ts';
import { startWithSandboxes } from '../harness/service/launched-sandboxes.ts';

const closings: (() => unknown)[] = [];
afterEach(async () => {
  jest.restoreAllMocks();
  for (const close of closings.splice(0).reverse()) await close();
});
afterAll(() => stopRedis());

async function start(environment: Record<string, string> = {}): Promise<RelayAndUpstream> {
  const pair = await startRelayAndUpstream(
    (socket) => void socket.write(openStream('data: 1\n\n')),
    environment,
  );
  closings.push(pair.close);
  return pair;
}

/** Opens a live stream; resolves when the head of its answer has come. */
async function open(at: SignedIn, headers: string[] = []): Promise<{ client: RawClient; status: number }> {
  const client = openLive(at, { headers });
  closings.push(() => client.socket.destroy());
  await client.waitFor('\r\n\r\n');
  return { client, status: parseAnswer(client.text()).status };
}

const statuses = async (count: number, at: SignedIn, headers?: string[]) => {
  const all: number[] = [];
  for (const _ of range(count)) all.push((await open(at, headers)).status);
  return all;
};

test('a user has places for live streams beside those for messages', async () => {
  const pair = await start({ MAX_STREAMS_PER_USER: '2' });
  const first = await open(pair, ['X-Request-Id: the-first-one']);
  expect([first.status, ...(await statuses(2, pair))]).toEqual([200, 200, 429]);
  expectProblem(await askLive(pair), 429, 'too_many_streams');
  expect(pair.upstream.requests).toHaveLength(2);
  for (const text of ['one', 'two']) await pair.ask({ body: JSON.stringify({ text }) }).waitFor('200 OK');
  expect((await pair.relay.send(pair.cookie)).status).toBe(429);
  expect(await statuses(1, { ...pair, cookie: await pair.relay.signIn(OTHER_USER) })).toEqual([200]);
  first.client.socket.destroy();
  await pair.relay.logLine(({ requestId }) => requestId === 'the-first-one');
  expect(await statuses(2, pair)).toEqual([200, 429]);
});

test('watches of files have places and a budget of their own, as live streams', async () => {
  const pair = await startWithSandboxes((socket) => void socket.write(openStream('data: 1\n\n')), {
    ...{ OPERATIONS: 'chat,sandbox', MAX_STREAMS_PER_USER: '2' },
    ...{ RATE_LIMIT: '3', RATE_WINDOW_MS: '60000' },
  });
  closings.push(pair.close);
  const watch = async (id: string) => {
    const client = openKind(pair, WATCH, id);
    closings.push(() => client.socket.destroy());
    await client.waitFor('\r\n\r\n');
    return { client, status: parseAnswer(client.text()).status };
  };
  expect(await statuses(3, pair)).toEqual([200, 200, 429]);
  const [first, second, third] = [await watch('the-first'), await watch('second'), await watch('third')];
  expect([first.status, second.status, third.status]).toEqual([200, 200, 429]);
  expect(third.client.text()).toContain('"code":"too_many_streams"');
  first.client.socket.destroy();
  await pair.relay.logLine(({ requestId }) => requestId === `${WATCH.id}the-first`);
  expect((await watch('fourth')).status).toBe(200);
  // One budget has three slots.
  expect(pair.upstream.requests).toHaveLength(5);
});

test('all guests of one address have MAX_STREAMS_PER_ADDRESS live streams together', async () => {
  const { upstream } = await start();
  const limits = { MAX_STREAMS_PER_USER: '1', MAX_STREAMS_PER_ADDRESS: '3' };
  const relay = await startRelay(upstream.url, { AUTH_MODE: 'guest', TRUST_PROXY: '1', ...limits });
  closings.push(() => relay.close());
  /** The statuses of so many live streams of a new guest. */
  async function asGuest(address: string, count: number) {
    const headers = { 'X-Forwarded-For': address };
    const response = await fetch(`${relay.url}/auth/guest`, { method: 'POST', headers });
    const cookie = (response.headers.getSetCookie()[0] ?? '').split(';', 1)[0] as string;
    return statuses(count, { relay, cookie }, [`X-Forwarded-For: ${address}`]);
  }
  for (const _ of range(3)) expect(await asGuest('10.0.0.1', 2)).toEqual([200, 429]);
  expect(await asGuest('10.0.0.1', 1)).toEqual([429]);
  expect(await asGuest('10.0.0.2', 1)).toEqual([200]);
});

describeWithRedis('with Redis', () => {
  test('a user has one limit of live streams at all instances', async () => {
    const redis = await startRedis();
    const environment = { REDIS_URL: redis.url, MAX_STREAMS_PER_USER: '2' };
    const pair = await start(environment);
    const other = await startRelay(pair.upstream.url, environment);
    closings.push(() => other.close());
    expect(await statuses(1, pair)).toEqual([200]);
    expect(await statuses(2, { ...pair, relay: other })).toEqual([200, 429]);
  });
});

test('live streams and messages of both path shapes have one budget', async () => {
  const pair = await start({ RATE_LIMIT: '2', RATE_WINDOW_MS: '60000', RATE_MAX_WAIT_MS: '0' });
  expect(await statuses(1, pair)).toEqual([200]);
  const generic = openLive(pair, { target: `/generic${LIVE}` });
  closings.push(() => generic.socket.destroy());
  await generic.waitFor('200 OK');
  expect((await pair.relay.send(pair.cookie)).status).toBe(429);
  expect(pair.upstream.requests.map(({ requestLine }) => requestLine.split(' ')[0])).toEqual(['GET', 'GET']);
});

test('a live stream waits for 30 seconds at most, whatever RATE_MAX_WAIT_MS says', async () => {
  const pair = await start({ RATE_LIMIT: '1', RATE_WINDOW_MS: '3600000', RATE_MAX_WAIT_MS: '600000' });
  expect(await statuses(1, pair)).toEqual([200]);
  const { setTimeout: real } = globalThis;
  const spy = jest.spyOn(globalThis, 'setTimeout');
  const waits: (() => void)[] = [];
  spy.mockImplementation(((run: () => void, ms: number) => {
    if (ms === 30_000) waits.push(run);
    return real(run, ms);
  }) as typeof setTimeout);
  const answer = askLive(pair);
  await until(() => waits.length === 1);
  // Its time is over.
  waits[0]?.();
  const refused = await answer;
  expectProblem(refused, 429, 'rate_limited');
  expect(refused.headers['retry-after']).toBe('1');
  expect(pair.upstream.requests).toHaveLength(1);
});

test('a live stream whose client leaves while it waits gives back its slot and its place', async () => {
  const pair = await start({ RATE_LIMIT: '1', RATE_WINDOW_MS: '600000', MAX_STREAMS_PER_USER: '2' });
  expect(await statuses(1, pair)).toEqual([200]);
  const reserve = jest.spyOn(pair.relay.budgets, 'reserve');
  const cancel = jest.spyOn(pair.relay.budgets, 'cancel');
  for (const n of range(3)) {
    const client = openLive(pair, { headers: [`X-Request-Id: left-waiting-${n}`] });
    // Without a place, it would not ask for a slot.
    await until(() => reserve.mock.calls.length > n);
    // Another one may wait for its slot only if no other one does.
    expect(await reserve.mock.results[n]?.value).toMatchObject({ state: 'granted' });
    client.socket.end();
    const line = await pair.relay.logLine(({ requestId }) => requestId === `left-waiting-${n}`);
    expect(line).toMatchObject({ outcome: 'client_closed', status: 499 });
    await until(() => cancel.mock.calls.length > n);
  }
  expect(pair.upstream.requests).toHaveLength(1);
});
