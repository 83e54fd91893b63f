import { afterEach, describe, expect, jest, test } from '@jest/globals';
import type { Store } from 'express-rate-limit';
import { createRunOnce } from '../../src/pace/arrivals.ts';
import { redisCounts } from '../../src/pace/redis-counts.ts';
import { type Counts, memoryCounts } from '../../src/pace/request-limits.ts';
import { connected, describeWithRedis, startRedis, stopRedis } from '../harness/redis/redis.ts';

const WINDOW_MS = 60_000;
const noWork = async () => {};

function contract(open: () => Promise<{ counts: Counts; close?: () => void }>): void {
  let close: (() => void) | undefined;
  const start = async (windowMs = WINDOW_MS) => {
    const opened = await open();
    close = opened.close;
    return createRunOnce(opened.counts, 'test', windowMs);
  };
  afterEach(() => close?.());

  test('runs once for each text', async () => {
    const once = await start();
    const work = jest.fn(noWork);
    expect([
      await once('a', work),
      await once('a', work),
      await once('b', work),
      await once('a', work),
    ]).toEqual([true, false, true, false]);
    expect(work).toHaveBeenCalledTimes(2);
  });

  test('rejects if it fails, and can run again for the same text', async () => {
    const once = await start();
    await expect(once('a', () => Promise.reject(new Error('away')))).rejects.toThrow('away');
    expect(await once('a', noWork)).toBe(true);
    expect(await once('a', noWork)).toBe(false);
  });

  test('runs for every different text', async () => {
    const once = await start();
    for (const text of ['', ' ', 'a:b', 'a', 'A', '*', '\n', 'ü', 'u\u0308'])
      expect([text, await once(text, noWork)]).toEqual([text, true]);
  });
}

describe('work that is done once in one process', () => {
  contract(async () => ({ counts: memoryCounts }));

  test('runs again after its window, and not before', async () => {
    jest.useFakeTimers();
    const stores: Store[] = [];
    const counts: Counts = (name) => {
      const store = memoryCounts(name);
      stores.push(store);
      return store;
    };
    const once = createRunOnce(counts, 'test', WINDOW_MS);
    await once('a', noWork);
    jest.advanceTimersByTime(WINDOW_MS - 1);
    expect(await once('a', noWork)).toBe(false);
    jest.advanceTimersByTime(WINDOW_MS + 1);
    expect(await once('a', noWork)).toBe(true);
    jest.useRealTimers();
    for (const store of stores) store.shutdown?.();
  });
});

describeWithRedis('work that is done once over all instances', () => {
  contract(async () => {
    const redis = await connected((await startRedis()).url);
    return {
      counts: redisCounts(redis),
      close() {
        redis.close();
        stopRedis();
      },
    };
  });

  test('runs once at two instances', async () => {
    const server = await startRedis();
    const [here, there] = [await connected(server.url), await connected(server.url)];
    const [once, onceThere] = [here, there].map((redis) =>
      createRunOnce(redisCounts(redis), 'test', WINDOW_MS),
    );
    expect(await once?.('a', noWork)).toBe(true);
    expect(await onceThere?.('a', noWork)).toBe(false);
    here.close();
    there.close();
    stopRedis();
  });

  test('does not run while Redis is away', async () => {
    const server = await startRedis();
    const redis = await connected(server.url);
    const once = createRunOnce(redisCounts(redis), 'test', WINDOW_MS);
    redis.close();
    const work = jest.fn(noWork);
    await expect(once('a', work)).rejects.toMatchObject({ code: 'session_store_unavailable' });
    expect(work).not.toHaveBeenCalled();
    stopRedis();
  });
});
