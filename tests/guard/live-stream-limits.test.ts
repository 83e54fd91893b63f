import { afterAll, afterEach, expect, jest, test } from '@jest/globals';
import { LIVE_YIELD_MS } from '../../src/pace/live-turns.ts';
import { memoryBudgets } from '../../src/pace/memory-budgets.ts';
import { resumptionTurns } from '../../src/pace/resumption-turns.ts';
import { expectProblem, parseAnswer } from '../support/call.ts';
import { startWithSandboxes } from '../support/launched-sandboxes.ts';
import { askLive, LIVE, openKind, openLive, openStream, type SignedIn, WATCH } from '../support/live.ts';
import { range } from '../support/numbered-messages.ts';
import type { RawClient } from '../support/raw-client.ts';
import { describeWithRedis, startRedis, stopRedis } from '../support/redis.ts';
import { OTHER_USER, startRelay } from '../support/relay.ts';
import { type RelayAndUpstream, startRelayAndUpstream, until } from '../support/relay-and-upstream.ts';
import { whileAwake } from '../support/while-awake.ts';

const closings: (() => unknown)[] = [];
async function cleanUp() {
  jest.restoreAllMocks();
  for (const close of closings.splice(0).reverse()) await close();
}
afterEach(cleanUp);
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
  const pair = await start({ MAX_LIVE_STREAMS_PER_USER: '2', MAX_STREAMS_PER_USER: '1' });
  const first = await open(pair, ['X-Request-Id: the-first-one']);
  expect([first.status, ...(await statuses(2, pair))]).toEqual([200, 200, 429]);
  expectProblem(await askLive(pair), 429, 'too_many_streams');
  expect(pair.upstream.requests).toHaveLength(2);
  const message = pair.ask();
  await message.waitFor('200 OK');
  expect((await pair.relay.send(pair.cookie)).status).toBe(429);
  expect(await statuses(1, { ...pair, cookie: await pair.relay.signIn(OTHER_USER) })).toEqual([200]);
  first.client.socket.destroy();
  await pair.relay.logLine(({ requestId }) => requestId === 'the-first-one');
  expect(await statuses(2, pair)).toEqual([200, 429]);
});

test('watches of files have places and a budget of their own, as live streams', async () => {
  const pair = await startWithSandboxes((socket) => void socket.write(openStream('data: 1\n\n')), {
    ...{ OPERATIONS: 'chat,sandbox', MAX_LIVE_STREAMS_PER_USER: '2' },
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

test('all guests of one address have the places of eight users', async () => {
  const pair = await startGuests();
  const from = (address: string) => [`X-Forwarded-For: ${address}`];
  for (const _ of range(8)) {
    const at = { ...pair, cookie: await guest(pair, '10.0.0.1') };
    expect(await statuses(2, at, from('10.0.0.1'))).toEqual([200, 429]);
  }
  const [ninth, other] = [await guest(pair, '10.0.0.1'), await guest(pair, '10.0.0.2')];
  expect(await statuses(1, { ...pair, cookie: ninth }, from('10.0.0.1'))).toEqual([429]);
  expect(await statuses(1, { ...pair, cookie: other }, from('10.0.0.2'))).toEqual([200]);
});

async function startGuests() {
  const { upstream } = await start();
  const settings = { AUTH_MODE: 'guest', TRUST_PROXY: '1', MAX_LIVE_STREAMS_PER_USER: '1' };
  const relay = await startRelay(upstream.url, settings);
  closings.push(() => relay.close());
  return { relay };
}

async function guest({ relay }: { relay: { url: string } }, address: string): Promise<string> {
  const headers = { 'X-Forwarded-For': address };
  const response = await fetch(`${relay.url}/auth/guest`, { method: 'POST', headers });
  return (response.headers.getSetCookie()[0] ?? '').split(';', 1)[0] as string;
}

describeWithRedis('with Redis', () => {
  test('a user has one limit of live streams at all instances', async () => {
    const redis = await startRedis();
    const environment = { REDIS_URL: redis.url, MAX_LIVE_STREAMS_PER_USER: '2' };
    const pair = await start(environment);
    const other = await startRelay(pair.upstream.url, environment);
    closings.push(() => other.close());
    expect(await statuses(1, pair)).toEqual([200]);
    expect(await statuses(2, { ...pair, relay: other })).toEqual([200, 429]);
  });
});

const methodsOf = ({ upstream }: RelayAndUpstream) =>
  upstream.requests.map(({ requestLine }) => requestLine.split(' ')[0]);

test('live streams and messages of both path shapes have one budget', async () => {
  const pair = await start({ RATE_LIMIT: '2', RATE_WINDOW_MS: '60000', RATE_MAX_WAIT_MS: '0' });
  expect(await statuses(1, pair)).toEqual([200]);
  const generic = openLive(pair, { target: `/generic${LIVE}` });
  closings.push(() => generic.socket.destroy());
  await generic.waitFor('200 OK');
  expect((await pair.relay.send(pair.cookie)).status).toBe(429);
  expect(methodsOf(pair)).toEqual(['GET', 'GET']);
});

test(
  'a live stream waits for its slot longer than a message, and takes every second one while messages wait',
  whileAwake(async () => {
    const pair = await start({ RATE_LIMIT: '1', RATE_WINDOW_MS: '250', RATE_MAX_WAIT_MS: '20000' });
    const clients = [pair.ask()];
    await until(() => pair.upstream.requests.length === 1);
    clients.push(...range(6).map(() => openLive(pair)));
    await until(() => pair.relay.open.count() === 1);
    clients.push(...range(6).map(() => pair.ask()));
    closings.push(() => {
      for (const { socket } of clients) socket.destroy();
    });
    await until(() => pair.upstream.requests.length === clients.length);
    const untilLastMessage = methodsOf(pair).slice(0, methodsOf(pair).lastIndexOf('POST') + 1);
    const count = (method: string) => untilLastMessage.filter((one) => one === method).length;
    expect(count('POST')).toBe(7);
    expect(count('GET')).toBeGreaterThan(0);
    expect(count('GET')).toBeLessThan(7);
    expect(untilLastMessage.join(' ')).not.toContain('GET GET');
  }, cleanUp),
);

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

test(
  'a live stream whose client leaves while it waits gives back its slot and its place',
  whileAwake(async () => {
    const environment = { RATE_LIMIT: '1', RATE_WINDOW_MS: '2000', MAX_LIVE_STREAMS_PER_USER: '2' };
    const pair = await start(environment);
    expect(await statuses(1, pair)).toEqual([200]);
    const reserve = jest.spyOn(pair.relay.budgets, 'reserve');
    for (const n of range(3)) {
      const before = reserve.mock.calls.length;
      const client = openLive(pair, { headers: [`X-Request-Id: left-waiting-${n}`] });
      await until(() => reserve.mock.calls.length > before);
      client.socket.end();
      const line = await pair.relay.logLine(({ requestId }) => requestId === `left-waiting-${n}`);
      expect(line).toMatchObject({ outcome: 'client_closed', status: 499 });
    }
    expect(await statuses(2, pair)).toEqual([200, 429]);
    expect(pair.upstream.requests).toHaveLength(2);
  }, cleanUp),
);

test(
  'resumptions of messages go before live streams',
  whileAwake(async () => {
    const rate = { limit: 1, windowMs: 1000 };
    const budgets = memoryBudgets(rate);
    // Four times as long as it is: a busy machine is late by some of it.
    const live = resumptionTurns(budgets, rate, 4 * LIVE_YIELD_MS);
    const resume = resumptionTurns(budgets, rate);
    const order: string[] = [];
    const take = async (kind: 'live' | 'resumption', turn: typeof live, n: number) => {
      await turn(
        { endpoint: 'acme/helper', holders: { user: `${kind}-${n}` } },
        new AbortController().signal,
      );
      order.push(kind);
    };
    await take('live', live, 0);
    await Promise.all([
      ...range(2).map((n) => take('live', live, n)),
      ...range(2).map((n) => take('resumption', resume, n)),
    ]);
    expect(order.map((kind) => kind[0]).join('')).toBe('lrrll');
  }),
);
