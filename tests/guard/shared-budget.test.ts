import { setTimeout as sleep } from 'node:timers/promises';
import { afterEach, expect, test } from '@jest/globals';
import {
  codeOf,
  DONE,
  mostInWindow,
  overtaking,
  type PacedPair,
  range,
  startPaced,
} from '../support/paced.ts';
import { plainAnswer, until } from '../support/pair.ts';
import { describeWithRedis, type RedisServer, startRedis, stopRedis } from '../support/redis.ts';
import { MESSAGE, startRelay, type TestRelay } from '../support/relay.ts';

const WINDOW = 1000;

let redis: RedisServer;
let pair: PacedPair;
let others: { relay: TestRelay; cookie: string }[] = [];

/** So many relays with one Redis before one bot service; the first is the pair's. */
async function start(count: number, environment = {}, answer?: Parameters<typeof startPaced>[1]) {
  redis = await startRedis();
  const all = { RATE_LIMIT: '5', RATE_WINDOW_MS: String(WINDOW), REDIS_URL: redis.url, ...environment };
  pair = await startPaced(all, answer);
  const isReady = ({ msg }: { msg?: unknown }) => msg === 'redis ready';
  others = await Promise.all(
    range(count - 1).map(async () => {
      const relay = await startRelay(pair.upstream.url, all);
      return { relay, cookie: await relay.signIn() };
    }),
  );
  await Promise.all([pair, ...others].map(({ relay }) => relay.logLine(isReady)));
}

afterEach(async () => {
  for (const { relay } of others.splice(0)) await relay.close();
  await pair.close();
  stopRedis();
});

/** Sends message `n` to one instance after the other. */
function send(n: number, signal?: AbortSignal): Promise<Response> {
  const { relay, cookie } = [pair, ...others][n % (others.length + 1)] as PacedPair;
  const body = JSON.stringify({ ...JSON.parse(MESSAGE), n });
  return relay.send(cookie, { body, ...(signal && { signal }) });
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

const times = () => pair.arrivals.map(({ at }) => at);

describeWithRedis('the budget of several instances', () => {
  test('holds in every window, also around the edges of any clock (L1)', async () => {
    const LONG = 2000;
    await start(3, { RATE_WINDOW_MS: String(LONG), RATE_MAX_WAIT_MS: '0' });
    // One at 0, four late in its window and five just behind it.
    await send(0);
    await sleep(LONG * 0.6);
    await Promise.all(range(4).map((n) => send(1 + n)));
    const first = times()[0] as number;
    await sleep(Math.max(0, first + LONG * 1.08 - performance.now()));
    const statuses = await Promise.all(range(5).map(async (n) => (await send(5 + n)).status));
    expect(statuses.filter((status) => status === 200)).toHaveLength(1);
    expect(mostInWindow(times(), LONG)).toBe(5);
  });

  test('lets 30 at once start in the order in which they came, five a window, none lost (L2)', async () => {
    await start(3, { RATE_MAX_WAIT_MS: '20000' });
    const sent: Promise<Response>[] = [];
    for (const n of range(30)) {
      // Of one session at each of three instances only two lie ahead; the rest stands in line.
      sent.push(send(n));
      await sleep(3);
    }
    const answers = await Promise.all(sent);
    expect(answers.map(({ status }) => status)).toEqual(range(30).map(() => 200));
    expect(mostInWindow(times(), WINDOW)).toBe(5);
    // Six windows' worth of messages: with five windows between, and little more.
    const took = (times().at(-1) as number) - (times()[0] as number);
    expect(took).toBeGreaterThan(5 * WINDOW);
    expect(took).toBeLessThan(7.5 * WINDOW);
    for (const instance of range(3)) {
      expect(
        overtaking(
          pair.arrivals.filter(({ n }) => n % 3 === instance),
          WINDOW,
        ),
      ).toEqual([]);
    }
  });

  test('has the slot that a client of one instance gave back for a client of another (L6)', async () => {
    await start(2, { RATE_LIMIT: '1', RATE_WINDOW_MS: '1500', RATE_MAX_WAIT_MS: '2000' });
    await send(0);
    const leaving = new AbortController();
    const left = send(2, leaving.signal).catch(() => 'left');
    await until(() => pair.relay.open.count() === 1);
    await sleep(100);
    leaving.abort();
    expect(await left).toBe('left');
    expect((await send(1)).status).toBe(200);
    expect(pair.started()).toEqual([0, 1]);
  });

  test("is paused for all of them by the service's 429 to one (L8)", async () => {
    let seen = 0;
    await start(2, { RATE_LIMIT: '1', RATE_WINDOW_MS: '500', RATE_MAX_WAIT_MS: '10000' }, (socket) => {
      const busy = plainAnswer('429 Busy', ['Content-Type: application/json', 'Retry-After: 2'], '{}');
      socket.write(seen++ === 0 ? busy : DONE);
    });
    const all = [send(0)];
    // Waits at the other instance when the pause is asked for, or asks for a slot in it.
    all.push(send(1));
    await until(() => pair.arrivals.length === 1);
    all.push(send(3));
    expect((await Promise.all(all)).map(({ status }) => status)).toEqual([200, 200, 200]);
    expect(times()).toHaveLength(4);
    expect((times()[1] as number) - (times()[0] as number)).toBeGreaterThan(1900);
  });

  test('is not guessed while Redis is away: 503 in under a second, and again as before when it is back (G12)', async () => {
    await start(2);
    redis.pause();
    const before = performance.now();
    const answers = await Promise.all([send(0), send(1)]);
    expect(performance.now() - before).toBeLessThan(1000);
    expect(answers.map(({ status }) => status)).toEqual([503, 503]);
    expect(await codeOf(answers[0] as Response)).toBe('session_store_unavailable');
    redis.resume();
    while ((await send(0)).status !== 200) await sleep(50);
    expect(pair.started()).toContain(0);
  });

  test('holds in every window also when Redis starts again and has forgotten it (L1)', async () => {
    const LONG = 2000;
    await start(2, { RATE_WINDOW_MS: String(LONG), RATE_MAX_WAIT_MS: '0' });
    expect((await Promise.all(range(5).map((n) => send(n)))).map(({ status }) => status)).toEqual(
      range(5).map(() => 200),
    );
    await redis.stop();
    await redis.start();
    // The sessions are forgotten too.
    pair = { ...pair, cookie: await signInAgain(pair.relay) };
    others = await Promise.all(
      others.map(async ({ relay }) => ({ relay, cookie: await signInAgain(relay) })),
    );
    const statuses = new Set<number>();
    for (let n = 5; pair.arrivals.length < 6; n++) {
      statuses.add((await send(n)).status);
      await sleep(10);
    }
    expect(statuses).toContain(429);
    expect(mostInWindow(times(), LONG)).toBe(5);
  });

  test('leaves a message that waits with nothing to start on when Redis goes away (G12)', async () => {
    await start(1, { RATE_LIMIT: '1', RATE_WINDOW_MS: '3000', RATE_MAX_WAIT_MS: '5000' });
    await send(0);
    const waiting = send(1);
    await until(() => pair.relay.open.count() === 1);
    await redis.stop();
    expect((await waiting).status).toBe(503);
    expect(pair.started()).toEqual([0]);
  });
});
