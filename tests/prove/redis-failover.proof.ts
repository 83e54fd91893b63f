import { afterEach, expect, jest, test } from '@jest/globals';
import { sleep } from '../harness/clock/sleep.ts';
import { describeWithRedis } from '../harness/redis/redis.ts';
import { startCluster } from '../harness/redis/redis-cluster.ts';
import { stopProcessesOfRedis } from '../harness/redis/redis-process.ts';
import { MASTER_NAME, startSentinels } from '../harness/redis/redis-sentinel.ts';
import { type FailoverReport, LIMIT, underLoad, WINDOW_MS } from '../harness/relay/failover-load.ts';

/** A key of the bot's budget. */
const BUDGET = 'bot-relay:{budget:acme/helper}:slots';

jest.setTimeout(120_000);

afterEach(stopProcessesOfRedis);

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
