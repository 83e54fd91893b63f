import type { Socket } from 'node:net';
import { afterAll, describe, expect, test } from '@jest/globals';
import {
  codeOf,
  DONE,
  range,
  startWithNumberedMessages,
  type WithNumberedMessages,
} from '../support/numbered-messages.ts';
import { describeWithRedis, startRedis, stopRedis } from '../support/redis.ts';
import { MESSAGE, startRelay, type TestRelay } from '../support/relay.ts';
import { plainAnswer, until } from '../support/relay-and-upstream.ts';
import { sleep } from '../support/sleep.ts';
import { whileAwake } from '../support/while-awake.ts';

const BOT = 'acme/helper';
const PAUSE = 1000;

const closings: (() => Promise<void>)[] = [];
afterAll(async () => {
  await Promise.all(closings.map((close) => close()));
  stopRedis();
});

const busy = (retryAfter: string) => (socket: Socket) =>
  void socket.write(
    plainAnswer('429 Busy', ['Content-Type: application/json', `Retry-After: ${retryAfter}`], '{}'),
  );
const silent = () => {};

interface Instances {
  readonly pair: WithNumberedMessages;
  /** Sends message `n` to one instance after the other. */
  send(n: number, signal?: AbortSignal): Promise<Response>;
}

/** Starts this many relays for one bot service, which gives the first messages these answers. */
async function start(
  environment: Record<string, string>,
  { count = 1, answers = [] }: { count?: number; answers?: ((socket: Socket) => void)[] },
): Promise<Instances> {
  const pair = await startWithNumberedMessages(environment, (socket) => {
    const answer = answers.shift() ?? (() => void socket.write(DONE));
    answer(socket);
  });
  closings.push(pair.close);
  const all: Pick<WithNumberedMessages, 'relay' | 'cookie'>[] = [pair];
  for (const _ of range(count - 1)) {
    const relay = await startRelay(pair.upstream.url, environment);
    closings.push(relay.close);
    all.push({ relay, cookie: await relay.signIn() });
  }
  return {
    pair,
    send(n, signal) {
      const { relay, cookie } = all[n % count] as WithNumberedMessages;
      const body = JSON.stringify({ ...JSON.parse(MESSAGE), n });
      return relay.send(cookie, { body, ...(signal && { signal }) });
    },
  };
}

/** Sets the budget's state: the service has asked for a day, and the minute that is believed is almost over. */
async function almostAMinuteAgo({ budgets }: TestRelay): Promise<void> {
  const { ticket } = await budgets.reserve({ endpoint: BOT, holders: ['somebody'], maxWaitMs: 0 });
  await budgets.penalize(BOT, ticket, { believedMs: PAUSE, askedMs: 86_400_000 });
  await budgets.cancel(BOT, ticket);
}

const statuses = async (sent: Promise<Response>[]) => (await Promise.all(sent)).map(({ status }) => status);
const secondsIn = (answer: Response) => Number(answer.headers.get('retry-after'));

/** Tests for both stores of budgets; `shared` selects the store, for `count` instances. */
function contract({ shared, count }: { shared: () => Promise<Record<string, string>>; count: number }): void {
  const begin = async (answers: ((socket: Socket) => void)[], environment: Record<string, string> = {}) =>
    start(
      { RATE_LIMIT: '100', RATE_MAX_WAIT_MS: '20000', ...(await shared()), ...environment },
      { count, answers },
    );

  test.concurrent('a pause of a day is believed for a minute, which refused clients get as Retry-After', async () => {
    const { pair, send } = await begin([busy('86400')], { RATE_MAX_WAIT_MS: '2000' });
    const refused = await send(0);
    expect([refused.status, await codeOf(refused), secondsIn(refused)]).toEqual([
      429,
      'upstream_rate_limited',
      60,
    ]);
    for (const n of [1, 2]) {
      const other = await send(n);
      expect([other.status, await codeOf(other)]).toEqual([429, 'rate_limited']);
      expect(secondsIn(other)).toBeGreaterThan(50);
      expect(secondsIn(other)).toBeLessThanOrEqual(60);
    }
    expect(pair.started()).toEqual([0]);
  });

  test.concurrent('after that minute one message is sent, and the others once it is accepted', async () => {
    let accept: (() => void) | undefined;
    const { pair, send } = await begin([
      (socket) => {
        accept = () => void socket.write(DONE);
      },
    ]);
    await almostAMinuteAgo(pair.relay);
    const sent = range(8).map((n) => send(n));
    await until(() => accept !== undefined);
    sent.push(...[8, 9].map((n) => send(n)));
    await sleep(1000);
    expect(pair.arrivals).toHaveLength(1);
    accept?.();
    expect(await statuses(sent)).toEqual(sent.map(() => 200));
    expect(pair.arrivals).toHaveLength(10);
  });

  test.concurrent('if that message is refused too, the others wait for the end of the next pause', async () => {
    const { pair, send } = await begin([busy('86400')], { RATE_MAX_WAIT_MS: '5000' });
    await almostAMinuteAgo(pair.relay);
    const sent = await Promise.all(range(6).map((n) => send(n)));
    expect(sent.map(({ status }) => status)).toEqual(range(6).map(() => 429));
    expect(pair.arrivals).toHaveLength(1);
    for (const one of sent) expect(secondsIn(one)).toBeGreaterThan(50);
    for (const one of sent) expect(secondsIn(one)).toBeLessThanOrEqual(60);
  });

  test.concurrent('if its client leaves or the service fails, the next one is sent', async () => {
    const fails = (socket: Socket) => void socket.write(plainAnswer('500 Oops', []));
    const { pair, send } = await begin([silent, fails, silent]);
    await almostAMinuteAgo(pair.relay);
    const leaving = range(10).map(() => new AbortController());
    const sent = leaving.map(({ signal }, n) => send(n, signal).catch(() => undefined));
    await until(() => pair.arrivals.length === 1);
    const first = pair.started()[0] as number;
    leaving[first]?.abort();
    // The second fails, so that the third is sent.
    await until(() => pair.arrivals.length === 3);
    await sleep(600);
    expect(pair.arrivals).toHaveLength(3);
    leaving[pair.started()[2] as number]?.abort();
    const all = (await Promise.all(sent)).map((one) => one?.status);
    expect(all.filter((status) => status === 200)).toHaveLength(7);
    expect(all.filter((status) => status === 502)).toHaveLength(1);
  });

  test.concurrent(
    'if it gets no answer in UPSTREAM_RESPONSE_TIMEOUT_MS, the next one is sent; others get Retry-After',
    whileAwake(async () => {
      const times = { UPSTREAM_RESPONSE_TIMEOUT_MS: '3000', RATE_MAX_WAIT_MS: '1000' };
      const { pair, send } = await begin([silent], times);
      await almostAMinuteAgo(pair.relay);
      await sleep(PAUSE + 50);
      const from = performance.now();
      const first = send(0);
      await until(() => pair.arrivals.length === 1);
      const waiting = await Promise.all([send(1), send(2)]);
      const afterMs = performance.now() - from;
      for (const one of waiting) {
        expect([one.status, await codeOf(one)]).toEqual([429, 'rate_limited']);
        // The trial is over by then.
        expect(afterMs + secondsIn(one) * 1000).toBeGreaterThanOrEqual(3000);
        expect(secondsIn(one)).toBeLessThanOrEqual(3);
      }
      expect(pair.arrivals).toHaveLength(1);
      expect((await first).status).toBe(504);
      expect(await statuses([send(3)])).toEqual([200]);
      expect(await statuses([send(4), send(5)])).toEqual([200, 200]);
    }),
  );

  test.concurrent('if its key is refused, it is sent with the next key', async () => {
    const keys = { UPSTREAM_API_KEYS: 'canary-key-one,canary-key-two' };
    const { pair, send } = await begin([(socket) => void socket.write(plainAnswer('401 No', []))], keys);
    await almostAMinuteAgo(pair.relay);
    const sent = range(4).map((n) => send(n));
    expect(await statuses(sent)).toEqual([200, 200, 200, 200]);
    const [first, second] = pair.started();
    expect(second).toBe(first);
  });
}

describe('if the bot service asks for a very long pause, with budgets in memory:', () => {
  contract({ shared: async () => ({}), count: 1 });
});

describeWithRedis('if the bot service asks for a very long pause, at two instances:', () => {
  const shared = async () => ({ REDIS_URL: (await startRedis()).url });
  contract({ shared, count: 2 });

  test.concurrent('the next message is sent when the instance with the message on trial has died', async () => {
    const { pair, send } = await start(
      {
        REDIS_URL: (await startRedis()).url,
        UPSTREAM_RESPONSE_TIMEOUT_MS: '2000',
        RATE_MAX_WAIT_MS: '20000',
      },
      { count: 2 },
    );
    await almostAMinuteAgo(pair.relay);
    await sleep(PAUSE + 50);
    // This one is never judged, as if its instance had died.
    const lost = await pair.relay.budgets.reserve({ endpoint: BOT, holders: ['lost'], maxWaitMs: 0 });
    expect(lost).toMatchObject({ state: 'granted', onTrial: true });
    const from = performance.now();
    expect(await statuses([send(0), send(1)])).toEqual([200, 200]);
    expect(performance.now() - from).toBeGreaterThan(1500);
  });
});
