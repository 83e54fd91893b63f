import { afterAll, expect } from '@jest/globals';
import { countAwakeMs } from '../support/awake.ts';
import {
  codeOf,
  DONE,
  mostInWindow,
  overtaking,
  range,
  startWithNumberedMessages,
  type WithNumberedMessages,
} from '../support/numbered-messages.ts';
import { describeWithRedis, startRedis, stopRedis } from '../support/redis.ts';
import { MESSAGE, startRelay, type TestRelay } from '../support/relay.ts';
import { plainAnswer, until } from '../support/relay-and-upstream.ts';
import { testSideBySide } from '../support/side-by-side.ts';
import { sleep } from '../support/sleep.ts';
import { whileAwake } from '../support/while-awake.ts';

const WINDOW = 1800;

const closings: (() => Promise<void>)[] = [];
afterAll(async () => {
  await Promise.all(closings.map((close) => close()));
  stopRedis();
});

let starting: Promise<unknown> = Promise.resolve();

/**
 * Starts the relays of one case after the other, since a process that is busy with starting reads Redis too late, and
 * sends late. The cases begin when all relays have started.
 */
async function start(...options: Parameters<typeof startInstances>): ReturnType<typeof startInstances> {
  const started = starting.then(() => startInstances(...options));
  starting = started.catch(() => {});
  // The other cases have asked for theirs by then.
  await started;
  await starting;
  return started;
}

/** Starts this many relays with one Redis for one bot service; the first is the pair's. */
async function startInstances(
  count: number,
  environment = {},
  answer?: Parameters<typeof startWithNumberedMessages>[1],
) {
  const redis = await startRedis();
  const all = { RATE_LIMIT: '5', RATE_WINDOW_MS: String(WINDOW), REDIS_URL: redis.url, ...environment };
  const pair = await startWithNumberedMessages(all, answer);
  const isReady = ({ msg }: { msg?: unknown }) => msg === 'redis ready';
  const others = await Promise.all(
    range(count - 1).map(async () => {
      const relay = await startRelay(pair.upstream.url, all);
      return { relay, cookie: await relay.signIn() };
    }),
  );
  const instances = [{ relay: pair.relay, cookie: pair.cookie }, ...others];
  closings.push(pair.close, ...others.map(({ relay }) => relay.close));
  await Promise.all(instances.map(({ relay }) => relay.logLine(isReady)));
  return {
    redis,
    pair,
    instances,
    /** Sends message `n` to one instance after the other. */
    send(n: number, signal?: AbortSignal): Promise<Response> {
      const { relay, cookie } = instances[n % count] as WithNumberedMessages;
      const body = JSON.stringify({ ...JSON.parse(MESSAGE), n });
      return relay.send(cookie, { body, ...(signal && { signal }) });
    },
    times: () => pair.arrivals.map(({ at }) => at),
  };
}

async function signInAgain(relay: TestRelay): Promise<string> {
  for (;;) {
    try {
      return await relay.signIn();
    } catch {
      await sleep(10);
    }
  }
}

describeWithRedis('the budget of several instances', () => {
  testSideBySide([
    [
      'gives a slot that was given back at one instance to a message at another',
      whileAwake(async () => {
        const { pair, send } = await start(2, {
          RATE_LIMIT: '1',
          RATE_WINDOW_MS: '1500',
          RATE_MAX_WAIT_MS: '2000',
        });
        await send(0);
        const leaving = new AbortController();
        const left = send(2, leaving.signal).catch(() => 'left');
        await until(() => pair.relay.open.count() === 1);
        await sleep(100);
        leaving.abort();
        expect(await left).toBe('left');
        expect((await send(1)).status).toBe(200);
        expect(pair.started()).toEqual([0, 1]);
      }),
    ],

    [
      "is paused at all instances by the service's 429 to one",
      whileAwake(async () => {
        let seen = 0;
        const { pair, send, times } = await start(
          2,
          { RATE_LIMIT: '1', RATE_WINDOW_MS: '500', RATE_MAX_WAIT_MS: '10000' },
          (socket) => {
            const busy = plainAnswer('429 Busy', ['Content-Type: application/json', 'Retry-After: 2'], '{}');
            socket.write(seen++ === 0 ? busy : DONE);
          },
        );
        const all = [send(0)];
        // This message waits at the other instance when the pause begins, or asks for a slot during it.
        all.push(send(1));
        await until(() => pair.arrivals.length === 1);
        all.push(send(3));
        expect((await Promise.all(all)).map(({ status }) => status)).toEqual([200, 200, 200]);
        expect(times()).toHaveLength(4);
        expect((times()[1] as number) - (times()[0] as number)).toBeGreaterThan(1900);
      }),
    ],

    [
      'holds in every window also if Redis restarts and has forgotten it',
      whileAwake(async () => {
        const LONG = 2000;
        const { redis, pair, instances, send, times } = await start(2, {
          RATE_WINDOW_MS: String(LONG),
          RATE_MAX_WAIT_MS: '0',
        });
        expect((await Promise.all(range(5).map((n) => send(n)))).map(({ status }) => status)).toEqual(
          range(5).map(() => 200),
        );
        await redis.stop();
        await redis.start();
        // The sessions are forgotten too.
        for (const one of instances) one.cookie = await signInAgain(one.relay);
        const statuses = new Set<number>();
        for (let n = 5; pair.arrivals.length < 6; n++) {
          statuses.add((await send(n)).status);
          await sleep(10);
        }
        expect(statuses).toContain(429);
        expect(mostInWindow(times(), LONG)).toBe(5);
      }),
    ],

    [
      'does not start a waiting message after Redis went away',
      async () => {
        const { redis, pair, send } = await start(1, {
          RATE_LIMIT: '1',
          RATE_WINDOW_MS: '3000',
          RATE_MAX_WAIT_MS: '5000',
        });
        await send(0);
        const waiting = send(1);
        await until(() => pair.relay.open.count() === 1);
        await redis.stop();
        expect((await waiting).status).toBe(503);
        expect(pair.started()).toEqual([0]);
      },
    ],

    [
      'starts 15 simultaneous messages in their order, five per window, and loses none',
      whileAwake(async () => {
        const { pair, send, times } = await start(3, { RATE_MAX_WAIT_MS: '20000' });
        const sent: Promise<Response>[] = [];
        const awakeMs = countAwakeMs();
        for (const n of range(15)) {
          // Each instance has at most two future slots for a holder; the other messages wait in its queue.
          sent.push(send(n));
          await sleep(3);
        }
        const answers = await Promise.all(sent);
        const awake = awakeMs();
        expect(answers.map(({ status }) => status)).toEqual(range(15).map(() => 200));
        expect(mostInWindow(times(), WINDOW)).toBe(5);
        // Three windows' worth of messages: with two windows between, and little more.
        const took = (times().at(-1) as number) - (times()[0] as number);
        expect(took).toBeGreaterThan(2 * WINDOW);
        expect(awake).toBeLessThan(3.5 * WINDOW);
        for (const instance of range(3)) {
          expect(
            overtaking(
              pair.arrivals.filter(({ n }) => n % 3 === instance),
              WINDOW,
            ),
          ).toEqual([]);
        }
      }),
    ],

    [
      'holds in every window, also across the boundary of two windows',
      whileAwake(async () => {
        const LONG = 2000;
        const { send, times } = await start(3, { RATE_WINDOW_MS: String(LONG), RATE_MAX_WAIT_MS: '0' });
        // One at 0, four late in its window, and five just after it.
        await send(0);
        await sleep(LONG * 0.6);
        await Promise.all(range(4).map((n) => send(1 + n)));
        const first = times()[0] as number;
        await sleep(Math.max(0, first + LONG * 1.08 - performance.now()));
        const statuses = await Promise.all(range(5).map(async (n) => (await send(5 + n)).status));
        expect(statuses.filter((status) => status === 200)).toHaveLength(1);
        expect(mostInWindow(times(), LONG)).toBe(5);
      }),
    ],

    [
      'answers 503 in under a second while Redis is away, and works when it is back',
      async () => {
        const { redis, pair, send } = await start(2);
        redis.pause();
        const awakeMs = countAwakeMs();
        const answers = await Promise.all([send(0), send(1)]);
        expect(awakeMs()).toBeLessThan(1000);
        expect(answers.map(({ status }) => status)).toEqual([503, 503]);
        expect(await codeOf(answers[0] as Response)).toBe('session_store_unavailable');
        redis.resume();
        await until(async () => (await send(0)).status === 200, 50);
        expect(pair.started()).toContain(0);
      },
    ],
  ]);
});
