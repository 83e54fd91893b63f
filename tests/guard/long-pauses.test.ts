import type { Socket } from 'node:net';
import { setTimeout as sleep } from 'node:timers/promises';
import { afterEach, beforeEach, describe, expect, test } from '@jest/globals';
import { codeOf, DONE, type PacedPair, range, startPaced } from '../support/paced.ts';
import { plainAnswer, until } from '../support/pair.ts';
import { describeWithRedis, startRedis, stopRedis } from '../support/redis.ts';
import { MESSAGE, startRelay, type TestRelay } from '../support/relay.ts';

const BOT = 'acme/helper';
const PAUSE = 1000;

let pair: PacedPair;
const others: { relay: TestRelay; cookie: string }[] = [];
/** What the bot service does with each message, in turn; then, it answers. */
let answers: ((socket: Socket) => void)[];
beforeEach(() => {
  answers = [];
});
afterEach(async () => {
  for (const { relay } of others.splice(0)) await relay.close();
  await pair.close();
  stopRedis();
});

const busy = (retryAfter: string) => (socket: Socket) =>
  void socket.write(
    plainAnswer('429 Busy', ['Content-Type: application/json', `Retry-After: ${retryAfter}`], '{}'),
  );
const silent = () => {};

/** So many relays before one bot service; the first is the pair's. */
async function start(environment: Record<string, string>, count = 1): Promise<void> {
  pair = await startPaced(environment, (socket) => {
    const answer = answers.shift() ?? (() => void socket.write(DONE));
    answer(socket);
  });
  for (const _ of range(count - 1)) {
    const relay = await startRelay(pair.upstream.url, environment);
    others.push({ relay, cookie: await relay.signIn() });
  }
}

/** Sends message `n` to one instance after the other. */
function send(n: number, signal?: AbortSignal): Promise<Response> {
  const { relay, cookie } = [pair, ...others][n % (others.length + 1)] as PacedPair;
  const body = JSON.stringify({ ...JSON.parse(MESSAGE), n });
  return relay.send(cookie, { body, ...(signal && { signal }) });
}

/** What the service has done by asking for a day, of whose minute nearly all is over. */
async function almostAMinuteAgo(): Promise<void> {
  const { budgets } = pair.relay;
  const { ticket } = await budgets.reserve({ endpoint: BOT, holders: ['somebody'], maxWaitMs: 0 });
  await budgets.penalize(BOT, ticket, { believedMs: PAUSE, askedMs: 86_400_000 });
  await budgets.cancel(BOT, ticket);
}

const statuses = async (sent: Promise<Response>[]) => (await Promise.all(sent)).map(({ status }) => status);
const secondsIn = (answer: Response) => Number(answer.headers.get('retry-after'));

/** What holds wherever the budgets are kept; `shared` says where, for how many instances. */
function contract(shared: () => Promise<Record<string, string>>, count: number): void {
  const begin = async (environment: Record<string, string> = {}) =>
    start({ RATE_LIMIT: '100', RATE_MAX_WAIT_MS: '20000', ...(await shared()), ...environment }, count);

  test('a day is believed for a minute, and whoever is refused is told so', async () => {
    await begin({ RATE_MAX_WAIT_MS: '2000' });
    answers = [busy('86400')];
    const refused = await send(0);
    expect([refused.status, await codeOf(refused), secondsIn(refused)]).toEqual([
      429,
      'upstream_rate_limited',
      60,
    ]);
    for (const n of [1, 2]) {
      const other = await send(n);
      expect([other.status, await codeOf(other)]).toEqual([429, 'rate_limited']);
      expect([59, 60]).toContain(secondsIn(other));
    }
    expect(pair.started()).toEqual([0]);
  });

  test('then one message goes, and the others once it is accepted', async () => {
    await begin();
    let accept: (() => void) | undefined;
    answers = [
      (socket) => {
        accept = () => void socket.write(DONE);
      },
    ];
    await almostAMinuteAgo();
    const sent = range(8).map((n) => send(n));
    await until(() => accept !== undefined);
    sent.push(...[8, 9].map((n) => send(n)));
    await sleep(1000);
    expect(pair.arrivals).toHaveLength(1);
    accept?.();
    expect(await statuses(sent)).toEqual(sent.map(() => 200));
    expect(pair.arrivals).toHaveLength(10);
  });

  test('if it is refused as well, the others wait for the next pause to end', async () => {
    await begin({ RATE_MAX_WAIT_MS: '5000' });
    answers = [busy('86400')];
    await almostAMinuteAgo();
    const sent = await Promise.all(range(6).map((n) => send(n)));
    expect(sent.map(({ status }) => status)).toEqual(range(6).map(() => 429));
    expect(pair.arrivals).toHaveLength(1);
    for (const one of sent) expect(secondsIn(one)).toBeGreaterThanOrEqual(58);
    for (const one of sent) expect(secondsIn(one)).toBeLessThanOrEqual(60);
  });

  test('if its client leaves, or the service fails, the next goes', async () => {
    await begin();
    answers = [silent, (socket) => void socket.write(plainAnswer('500 Oops', [])), silent];
    await almostAMinuteAgo();
    const leaving = range(10).map(() => new AbortController());
    const sent = leaving.map(({ signal }, n) => send(n, signal).catch(() => undefined));
    await until(() => pair.arrivals.length === 1);
    const first = pair.started()[0] as number;
    leaving[first]?.abort();
    // The second fails, so that the third goes.
    await until(() => pair.arrivals.length === 3);
    await sleep(600);
    expect(pair.arrivals).toHaveLength(3);
    leaving[pair.started()[2] as number]?.abort();
    const all = (await Promise.all(sent)).map((one) => one?.status);
    expect(all.filter((status) => status === 200)).toHaveLength(7);
    expect(all.filter((status) => status === 502)).toHaveLength(1);
  });

  test('if it has no answer in UPSTREAM_RESPONSE_TIMEOUT_MS, the next goes; who cannot wait is told when', async () => {
    await begin({ UPSTREAM_RESPONSE_TIMEOUT_MS: '4000', RATE_MAX_WAIT_MS: '2000' });
    answers = [silent];
    await almostAMinuteAgo();
    await sleep(PAUSE + 50);
    const first = send(0);
    await until(() => pair.arrivals.length === 1);
    const waiting = await Promise.all([send(1), send(2)]);
    for (const one of waiting) {
      expect([one.status, await codeOf(one)]).toEqual([429, 'rate_limited']);
      expect([2, 3]).toContain(secondsIn(one));
    }
    expect(pair.arrivals).toHaveLength(1);
    await sleep(3000);
    expect((await first).status).toBe(504);
    expect(await statuses([send(3)])).toEqual([200]);
    expect(await statuses([send(4), send(5)])).toEqual([200, 200]);
  });

  test('and one whose key is refused goes on with the next key', async () => {
    await begin({ UPSTREAM_API_KEYS: 'canary-key-one,canary-key-two' });
    answers = [(socket) => void socket.write(plainAnswer('401 No', []))];
    await almostAMinuteAgo();
    const sent = range(4).map((n) => send(n));
    expect(await statuses(sent)).toEqual([200, 200, 200, 200]);
    const [first, second] = pair.started();
    expect(second).toBe(first);
  });
}

describe('where the bot service asks for a very long pause, in memory', () => {
  contract(async () => ({}), 1);
});

describeWithRedis('where the bot service asks for a very long pause, at two instances', () => {
  contract(async () => ({ REDIS_URL: (await startRedis()).url }), 2);

  test('one that dies with the message on trial lets the next go when its time is over', async () => {
    await start(
      {
        REDIS_URL: (await startRedis()).url,
        UPSTREAM_RESPONSE_TIMEOUT_MS: '3000',
        RATE_MAX_WAIT_MS: '20000',
      },
      2,
    );
    await almostAMinuteAgo();
    await sleep(PAUSE + 50);
    // Nothing is heard of this one any more.
    const lost = await pair.relay.budgets.reserve({ endpoint: BOT, holders: ['lost'], maxWaitMs: 0 });
    expect(lost).toMatchObject({ state: 'granted', onTrial: true });
    const from = performance.now();
    expect(await statuses([send(0), send(1)])).toEqual([200, 200]);
    expect(performance.now() - from).toBeGreaterThan(2500);
  });
});
