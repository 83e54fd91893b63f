import { afterEach, beforeEach, expect, test } from '@jest/globals';
import { redisBudgets } from '../../src/pace/redis-budgets.ts';
import type { Redis } from '../../src/storage/redis.ts';
import { sleep } from '../harness/clock/sleep.ts';
import {
  connected,
  describeWithRedis,
  type RedisServer,
  startRedis,
  stopRedis,
} from '../harness/redis/redis.ts';

const BOT = 'acme/helper';
const request = (holder: string, maxWaitMs = 0) => ({ endpoint: BOT, holders: [holder], maxWaitMs });

describeWithRedis('budgets in Redis', () => {
  let server: RedisServer;
  let redis: Redis;
  beforeEach(async () => {
    server = await startRedis();
    redis = await connected(server.url);
  });
  afterEach(() => {
    redis.close();
    stopRedis();
  });

  test("use Redis's clock, and leave no keys when the window is over", async () => {
    const windowMs = 1_000;
    const budgets = redisBudgets(redis, { limit: 1, windowMs });
    expect(await budgets.reserve(request('a'))).toMatchObject({ state: 'granted', waitMs: 0 });
    const { state, waitMs } = await budgets.reserve(request('b'));
    expect(state).toBe('refused');
    expect(waitMs).toBeGreaterThan(0);
    expect(waitMs).toBeLessThanOrEqual(windowMs);
    const { ticket, waitMs: slotIn } = await budgets.reserve(request('b', windowMs));
    await sleep(slotIn + 5);
    expect(await budgets.start(BOT, ticket)).toBe(0);
    await budgets.pause(BOT, 100, ticket);
    expect(await server.command('DBSIZE')).toBe(2);
    await sleep(windowMs + 300);
    expect(await server.command('DBSIZE')).toBe(0);
  });

  test('remember a slot for a window from when it comes, and a pause to the millisecond', async () => {
    const budgets = redisBudgets(redis, { limit: 1, windowMs: 400 });
    await budgets.reserve(request('a'));
    const { ticket, waitMs } = await budgets.reserve(request('b', 400));
    // The slot of the first is over, and that of the second is in the middle of its window.
    await sleep(waitMs + 200);
    expect(await budgets.reserve(request('c'))).toMatchObject({ state: 'refused' });
    await budgets.pause(BOT, 2000, ticket);
    const { waitMs: paused } = await budgets.reserve(request('c'));
    expect(paused).toBeGreaterThan(2200);
    expect(paused).toBeLessThanOrEqual(2400);
  });

  test('need one round trip for each call', async () => {
    const budgets = redisBudgets(redis, { limit: 1, windowMs: 600_000 });
    await budgets.reserve(request('a'));
    await server.command('CONFIG', 'RESETSTAT');
    const { ticket } = await budgets.reserve(request('b', 900_000));
    await budgets.start(BOT, ticket);
    await budgets.cancel(BOT, ticket);
    const stats = String(await server.command('INFO', 'commandstats'));
    expect(stats).toMatch(/cmdstat_evalsha:calls=3,/);
    expect(stats).not.toMatch(/cmdstat_(eval|script):/);
  });
});
