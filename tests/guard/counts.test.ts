import { afterEach, beforeEach, describe, expect, jest, test } from '@jest/globals';
import type { Store } from 'express-rate-limit';
import { createLogger } from '../../src/logger.ts';
import { createRunOnce } from '../../src/pace/arrivals.ts';
import { redisCounts } from '../../src/pace/redis-counts.ts';
import { type Counts, memoryCounts, requestLimits } from '../../src/pace/request-limits.ts';
import { secret } from '../../src/secret.ts';
import { openRedis, type Redis } from '../../src/storage/redis.ts';
import { call, expectProblem } from '../harness/clients/call.ts';
import { until } from '../harness/clock/until.ts';
import {
  answering,
  connected,
  describeWithRedis,
  type RedisServer,
  startRedis,
  stopRedis,
} from '../harness/redis/redis.ts';
import { startTestApp, type TestApp } from '../harness/relay/test-app.ts';

const WINDOW_MS = 60_000;
const noWork = async () => {};

let app: TestApp | undefined;
const printed: string[] = [];
afterEach(async () => {
  await app?.close();
  app = undefined;
  expect(printed.splice(0)).toEqual([]);
});

/** Starts an app that counts each request by its path; returns what asks it. */
async function startWith(counts: Counts, limit: number, windowMs = WINDOW_MS) {
  const logger = createLogger('debug', { write: (line: string) => void printed.push(line) });
  const pass = requestLimits(counts, logger)({ name: 'test', detail: 'Too many.', limit, windowMs });
  app = await startTestApp((on) => {
    on.get('/:key', async (req, res) => {
      await pass(req, res, req.params.key);
      res.end();
    });
  });
  const { port } = app;
  return async (path: string) => (await call(port, path)).status;
}

/** Tests for both stores. */
function contract(counts: () => Counts): void {
  test('pass as many requests of each key as may, also of those that come at once', async () => {
    const ask = await startWith(counts(), 2);
    const statuses = await Promise.all(Array.from({ length: 10 }, () => ask('/one')));
    expect(statuses.sort()).toEqual([200, 200, ...Array(8).fill(429)]);
    expect(await ask('/two')).toBe(200);
  });

  test('end with their window, which refused requests do not make longer', async () => {
    const ask = await startWith(counts(), 1, 500);
    await until(async () => (await ask('/one')) === 429);
    await until(async () => (await ask('/one')) === 200);
  });

  test('are not kept where there is no limit', async () => {
    const ask = await startWith(counts(), 0);
    for (let n = 0; n < 5; n += 1) expect(await ask('/one')).toBe(200);
  });

  test('have work done once for each text, and again if it has failed', async () => {
    const once = createRunOnce(counts(), 'test', WINDOW_MS);
    const work = jest.fn(noWork);
    for (const [text, runs] of [
      ['a', true],
      ['a', false],
      ['b', true],
      ['a', false],
    ] as const)
      expect(await once(text, work)).toBe(runs);
    expect(work).toHaveBeenCalledTimes(2);
    await expect(once('c', () => Promise.reject(new Error('away')))).rejects.toThrow('away');
    for (const text of ['c', '', ' ', 'a:b', 'A', '*', '\n', 'ü', 'u\u0308'])
      expect([text, await once(text, noWork), await once(text, noWork)]).toEqual([text, true, false]);
  });
}

describe('counts in memory', () => {
  contract(() => memoryCounts);

  test('have work done again after its window, and not before', async () => {
    jest.useFakeTimers();
    const stores: Store[] = [];
    const once = createRunOnce(
      (name) => stores[stores.push(memoryCounts(name)) - 1] as Store,
      'test',
      WINDOW_MS,
    );
    await once('a', noWork);
    jest.advanceTimersByTime(WINDOW_MS - 1);
    expect(await once('a', noWork)).toBe(false);
    jest.advanceTimersByTime(WINDOW_MS + 1);
    expect(await once('a', noWork)).toBe(true);
    jest.useRealTimers();
    for (const store of stores) store.shutdown?.();
  });
});

describeWithRedis('counts in Redis', () => {
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
  contract(() => redisCounts(redis));

  test('are shared by all instances', async () => {
    const other = await connected(server.url);
    const [here, there] = [redis, other].map((one) => createRunOnce(redisCounts(one), 'test', WINDOW_MS));
    expect([await here?.('a', noWork), await there?.('a', noWork)]).toEqual([true, false]);
    other.close();
  });

  test('begin where Redis starts later than the relay, go on after SCRIPT FLUSH, and begin again after a restart', async () => {
    await server.stop();
    const late = openRedis({ url: secret(server.url), logger: createLogger('silent') });
    const ask = await startWith(redisCounts(late), 2);
    expect(await ask('/one')).toBe(503);
    await server.start();
    await answering(late);
    expect([await ask('/one')]).toEqual([200]);
    await server.command('SCRIPT', 'FLUSH');
    expect([await ask('/one'), await ask('/one')]).toEqual([200, 429]);
    await server.stop();
    expectProblem(await call(app?.port ?? 0, '/one'), 503, 'session_store_unavailable');
    await server.start();
    await answering(late);
    expect([await ask('/one'), await ask('/one'), await ask('/one')]).toEqual([200, 200, 429]);
    late.close();
  });

  test('have no work done while Redis is away', async () => {
    const once = createRunOnce(redisCounts(redis), 'test', WINDOW_MS);
    redis.close();
    const work = jest.fn(noWork);
    await expect(once('a', work)).rejects.toMatchObject({ code: 'session_store_unavailable' });
    expect(work).not.toHaveBeenCalled();
  });
});
