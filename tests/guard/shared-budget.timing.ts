import { afterAll, expect, test } from '@jest/globals';
import { sleep } from '../harness/clock/sleep.ts';
import { describeWithRedis, startRedis, stopRedis } from '../harness/redis/redis.ts';
import {
  mostInWindow,
  overtaking,
  range,
  startWithNumberedMessages,
  type WithNumberedMessages,
} from '../harness/relay/numbered-messages.ts';
import { MESSAGE, startRelay, type TestRelay } from '../harness/relay/relay.ts';

const WINDOW = 1800;

const closings: (() => Promise<void>)[] = [];
afterAll(async () => {
  await Promise.all(closings.map((close) => close()));
  stopRedis();
});

/** Starts this many relays with one Redis for one bot service; the first is the pair's. */
async function start(count: number, environment = {}) {
  const redis = await startRedis();
  const all = { RATE_LIMIT: '5', RATE_WINDOW_MS: String(WINDOW), REDIS_URL: redis.url, ...environment };
  const pair = await startWithNumberedMessages(all);
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
    send(n: number): Promise<Response> {
      const { relay, cookie } = instances[n % count] as WithNumberedMessages;
      return relay.send(cookie, { body: JSON.stringify({ ...JSON.parse(MESSAGE), n }) });
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
  test('holds in every window also if Redis restarts and has forgotten it', async () => {
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
  });

  test('starts 15 simultaneous messages in their order, five per window, and loses none', async () => {
    const { pair, send, times } = await start(3, { RATE_MAX_WAIT_MS: '20000' });
    const sent: Promise<Response>[] = [];
    for (const n of range(15)) {
      // Each instance has at most two future slots for a holder; the other messages wait in its queue.
      sent.push(send(n));
      await sleep(3);
    }
    const answers = await Promise.all(sent);
    expect(answers.map(({ status }) => status)).toEqual(range(15).map(() => 200));
    expect(mostInWindow(times(), WINDOW)).toBe(5);
    // Three windows' worth of messages: with two windows between, and little more.
    const took = (times().at(-1) as number) - (times()[0] as number);
    expect(took).toBeGreaterThan(2 * WINDOW);
    expect(took).toBeLessThan(3.5 * WINDOW);
    for (const instance of range(3)) {
      expect(
        overtaking(
          pair.arrivals.filter(({ n }) => n % 3 === instance),
          WINDOW,
        ),
      ).toEqual([]);
    }
  });
});
