import { afterAll, expect, test } from '@jest/globals';
import { createLogger } from '../../src/logger.ts';
import { redisBudgets } from '../../src/pace/redis-budgets.ts';
import { secret } from '../../src/secret.ts';
import { openRedis } from '../../src/storage/redis.ts';
import { sleep } from '../harness/clock/sleep.ts';
import { until } from '../harness/clock/until.ts';
import { describeWithRedis, stopRedis } from '../harness/redis/redis.ts';
import { startCluster } from '../harness/redis/redis-cluster.ts';

afterAll(stopRedis);

describeWithRedis('a cluster', () => {
  test('keeps a budget exact, and fails no call, while its slot moves to another master', async () => {
    const cluster = await startCluster();
    const lines: string[] = [];
    const logger = createLogger('info', { write: (line: string) => void lines.push(line) });
    const redis = openRedis({ url: secret(cluster.url), isCluster: true, logger });
    await redis.ready(30_000);
    const windowMs = 1_000;
    const budgets = redisBudgets(redis, { limit: 5, windowMs, limitOf: () => undefined });
    const key = 'bot-relay:{budget:acme/helper}:slots';
    const before = await cluster.masterOf(key);
    /** When each slot was asked for, and when it was given: Redis has given it between the two. */
    const granted: { readonly from: number; readonly to: number }[] = [];
    const failures: unknown[] = [];
    let isOver = false;
    const asking = Array.from({ length: 4 }, async () => {
      while (!isOver) {
        const ask = { endpoint: 'acme/helper', holders: ['ada'], maxWaitMs: 0 };
        const from = performance.now();
        try {
          const { state } = await budgets.reserve(ask);
          if (state === 'granted') granted.push({ from, to: performance.now() });
        } catch (error) {
          failures.push(error);
        }
        await sleep(5);
      }
    });
    await until(() => granted.length >= 5);
    for (let moves = 0; moves < 3; moves += 1) {
      await cluster.moveSlot(key);
      await sleep(700);
    }
    isOver = true;
    await Promise.all(asking);
    expect(failures).toEqual([]);
    expect((await cluster.masterOf(key)).port).not.toBe(before.port);
    expect(granted.length).toBeGreaterThanOrEqual(10);
    const spans = granted.slice(5).map(({ to }, n) => to - (granted[n]?.from ?? 0));
    expect(Math.min(...spans)).toBeGreaterThan(windowMs - 50);
    expect(lines.map((line) => JSON.parse(line).msg)).toEqual(['redis ready']);
    expect(redis.backAt()).toBeUndefined();
    redis.close();
  });
});
