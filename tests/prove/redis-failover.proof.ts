import { randomUUID } from 'node:crypto';
import { afterEach, expect, jest, test } from '@jest/globals';
import { sleep } from '../harness/clock/sleep.ts';
import { until } from '../harness/clock/until.ts';
import { describeWithRedis, stopRedis } from '../harness/redis/redis.ts';
import { startCluster } from '../harness/redis/redis-cluster.ts';
import { MASTER_NAME, startSentinels } from '../harness/redis/redis-sentinel.ts';
import {
  mostInWindow,
  startWithNumberedMessages,
  type WithNumberedMessages,
} from '../harness/relay/numbered-messages.ts';
import { MESSAGE, startRelay, type TestRelay } from '../harness/relay/relay.ts';

const LIMIT = 5;
const WINDOW_MS = 1_000;
const LANES = 6;
/** How long the load goes on after Redis is back, in ms. */
const AFTER_MS = 4_000;

/** What happened to messages while Redis changed its master. */
interface FailoverReport {
  /** How many messages were accepted in the end. */
  readonly accepted: number;
  /** The numbers of messages that arrived more than once at the bot service. */
  readonly doubled: readonly number[];
  /** How many arrived in one window at most: all the time, and without the second of the change. */
  readonly mostInAWindow: number;
  readonly mostElsewhere: number;
  /** How many answers were 503; and how long the slowest took that was asked for after the first, in ms. */
  readonly unavailable: number;
  readonly slowestMs: number;
  /** What failed after it had left, and answers of other statuses than 200, 429 and 503. */
  readonly others: readonly string[];
  /** How long no message arrived, in ms. */
  readonly gapMs: number;
}

/**
 * Two relays under load, while `change` makes Redis change its master, or move a slot. Each message is sent by its client again and
 * again, with the same id, until it is accepted, as clients do.
 */
async function underLoad(
  environment: Record<string, string>,
  change: () => Promise<void>,
): Promise<FailoverReport> {
  const limits = { RATE_LIMIT: String(LIMIT), RATE_WINDOW_MS: String(WINDOW_MS), RATE_MAX_WAIT_MS: '2000' };
  const clients = { CLIENT_LIMIT_PER_ADDRESS: '0', CLIENT_LIMIT_PER_SESSION: '0' };
  const all = { ...limits, ...clients, ...environment };
  // As the product: who has lost Redis is told so, and does not wait.
  const product = { commandTimeoutMs: 500 };
  const pair = await startWithNumberedMessages(all, undefined, product);
  const other = await startRelay(pair.upstream.url, all, product);
  const load = startLoad(pair, [pair.relay, other]);
  try {
    await until(() => pair.arrivals.length >= 3 * LIMIT);
    const changedAt = performance.now();
    await change();
    // By then, who has lost Redis knows it.
    await sleep(AFTER_MS / 2);
    await until(load.isBack);
    await sleep(AFTER_MS);
    await load.stop();
    return reportOf(pair, load, changedAt);
  } finally {
    await load.stop();
    await other.close();
    await pair.close();
  }
}

interface Load {
  accepted: number;
  unavailable: number;
  slowestMs: number;
  readonly others: string[];
  /** Whether messages were accepted again, after the last 503 if there was one. */
  isBack(): boolean;
  stop(): Promise<void>;
}

function startLoad({ cookie }: WithNumberedMessages, relays: readonly TestRelay[]): Load {
  let next = 0;
  let isOver = false;
  let acceptedSince = 0;
  let firstAt = Number.POSITIVE_INFINITY;
  async function sendUntilAccepted(n: number): Promise<void> {
    const body = JSON.stringify({ ...JSON.parse(MESSAGE), n, customMessageId: randomUUID() });
    for (let tries = n; ; tries += 1) {
      const sentAt = performance.now();
      const answer = await (relays[tries % relays.length] as TestRelay).send(cookie, { body });
      const text = await answer.text();
      const tookMs = performance.now() - sentAt;
      const isFailed = text.startsWith('event: error\n');
      if (answer.status === 200 && !isFailed) {
        load.accepted += 1;
        acceptedSince += 1;
        return;
      }
      if (answer.status === 503) {
        const now = performance.now();
        load.unavailable += 1;
        acceptedSince = 0;
        // One that waited for its slot when Redis was lost had waited before.
        if (sentAt > firstAt) load.slowestMs = Math.max(load.slowestMs, tookMs);
        firstAt = Math.min(firstAt, now);
      } else if (answer.status !== 429) {
        load.others.push(`${answer.status} ${text}`);
        return;
      }
      if (isOver) return;
      await sleep(100);
    }
  }
  const lanes = Array.from({ length: LANES }, async () => {
    while (!isOver) await sendUntilAccepted(next++);
  });
  const load: Load = {
    ...{ accepted: 0, unavailable: 0, slowestMs: 0, others: [] },
    isBack: () => acceptedSince >= 2 * LIMIT,
    async stop() {
      isOver = true;
      await Promise.all(lanes);
    },
  };
  return load;
}

function reportOf(
  { arrivals }: WithNumberedMessages,
  { accepted, unavailable, slowestMs, others }: Load,
  changedAt: number,
): FailoverReport {
  const numbers = arrivals.map(({ n }) => n);
  const times = arrivals.map(({ at }) => at);
  const gaps = times.slice(1).map((at, n) => ({ ms: at - (times[n] as number), at }));
  const [longest = { ms: 0, at: 0 }] = gaps.sort((a, b) => b.ms - a.ms);
  const calm = [times.filter((at) => at < changedAt), times.filter((at) => at > longest.at + WINDOW_MS)];
  return {
    ...{ accepted, unavailable, slowestMs, others, gapMs: longest.ms },
    doubled: numbers.filter((n, place) => numbers.indexOf(n) !== place),
    mostInAWindow: mostInWindow(times, WINDOW_MS),
    mostElsewhere: Math.max(...calm.map((some) => mostInWindow(some, WINDOW_MS))),
  };
}

/** A key of the bot's budget. */
const BUDGET = 'bot-relay:{budget:acme/helper}:slots';

jest.setTimeout(120_000);

afterEach(stopRedis);

function expectHeld(report: FailoverReport): void {
  process.stdout.write(`${JSON.stringify(report)}\n`);
  expect(report.doubled).toEqual([]);
  // What an instance has written at the old master may be gone.
  for (const other of report.others) expect(other).toMatch(/^200 event: error\n.*"code":"answer_lost"/);
  expect(report.mostElsewhere).toBeLessThanOrEqual(LIMIT);
  expect(report.mostInAWindow).toBeLessThanOrEqual(2 * LIMIT);
  expect(report.unavailable).toBeGreaterThan(0);
  // A message asks in five round trips, each of half a second at most.
  expect(report.slowestMs).toBeLessThan(2_600);
}

describeWithRedis('two relays with a cluster', () => {
  test('run no message twice, and go at most one budget above it, when a master of it is killed', async () => {
    const cluster = await startCluster();
    const environment = { REDIS_URL: cluster.url, REDIS_MODE: 'cluster' };
    const report = await underLoad(environment, async () => (await cluster.masterOf(BUDGET)).stop());
    expectHeld(report);
  });

  test('keep the budget, and fail no message, while the slot of the budget moves', async () => {
    const cluster = await startCluster();
    const report = await underLoad({ REDIS_URL: cluster.url, REDIS_MODE: 'cluster' }, async () => {
      for (let moves = 0; moves < 4; moves += 1) {
        await cluster.moveSlot(BUDGET);
        await sleep(WINDOW_MS);
      }
    });
    expect(report).toMatchObject({ doubled: [], others: [], unavailable: 0 });
    expect(report.mostInAWindow).toBeLessThanOrEqual(LIMIT);
  });
});

describeWithRedis('two relays whose Redis Sentinel watches', () => {
  const environment = (url: string) => ({
    ...{ REDIS_URL: url, REDIS_MODE: 'sentinel', REDIS_SENTINEL_MASTER: MASTER_NAME },
  });

  test('run no message twice, and go at most one budget above it, when the master is killed', async () => {
    const group = await startSentinels();
    const report = await underLoad(environment(group.url), async () => (await group.master()).stop());
    expectHeld(report);
  });

  test('keep the budget, and run no message twice, when a failover is planned', async () => {
    const group = await startSentinels();
    const report = await underLoad(environment(group.url), async () => {
      await group.sentinels[0]?.command('SENTINEL', 'FAILOVER', MASTER_NAME);
    });
    process.stdout.write(`${JSON.stringify(report)}\n`);
    expect(report.doubled).toEqual([]);
    // What an instance has written at the old master is gone.
    for (const other of report.others) expect(other).toMatch(/^200 event: error\n.*"code":"answer_lost"/);
    expect(report.mostInAWindow).toBeLessThanOrEqual(LIMIT);
  });

  test('do the same when the master hangs, and comes back after another has taken its place', async () => {
    const group = await startSentinels();
    const report = await underLoad(environment(group.url), async () => {
      const master = await group.master();
      master.pause();
      while ((await group.master()).port === master.port) await sleep(50);
      master.resume();
    });
    expectHeld(report);
  });
});
