import { afterAll, afterEach, beforeAll, beforeEach, describe, expect, test } from '@jest/globals';
import { memoryStreamLeases } from '../../src/pace/memory-stream-leases.ts';
import type { StreamLease, StreamLeases } from '../../src/pace/places.ts';
import { redisStreamLeases } from '../../src/pace/redis-stream-leases.ts';
import type { Redis } from '../../src/storage/redis.ts';
import { keyPart } from '../../src/storage/redis-key.ts';
import { eventually, until } from '../harness/clock/until.ts';
import { faultProxy } from '../harness/faults/fault-proxy.ts';
import {
  answering,
  connected,
  describeWithRedis,
  type RedisServer,
  startRedis,
  stopRedis,
} from '../harness/redis/redis.ts';

/** How many places a holder has in most cases. */
const MAX = 3;
const UNAVAILABLE = { code: 'session_store_unavailable' };

/** Takes this many leases, all of which must be granted. */
async function take(leases: StreamLeases, count: number, holder = 'holder-a'): Promise<StreamLease[]> {
  const taken = await Promise.all(Array.from({ length: count }, () => leases.acquire(holder, MAX)));
  expect(taken).not.toContain(undefined);
  return taken as StreamLease[];
}

/** Asks until the holder gets one more lease. */
const untilGranted = (leases: StreamLeases, max = MAX) =>
  eventually(async () => expect(await leases.acquire('holder-a', max)).toBeDefined());

/**
 * Resolves when all releases until now have reached Redis or have failed. Only `close` tells this. The relay does not
 * use the leases after it. Here they are used on, which works.
 */
const releasesSent = (leases: StreamLeases) => leases.close();

/** Tests for every implementation of the leases. */
function contract(make: () => StreamLeases): void {
  let leases: StreamLeases;
  beforeEach(() => {
    leases = make();
  });

  test('are at most as many as each holder may have, also for simultaneous requests', async () => {
    const asked = await Promise.all(Array.from({ length: 10 }, () => leases.acquire('holder-a', MAX)));
    expect(asked.filter(Boolean)).toHaveLength(MAX);
    expect(await leases.acquire('holder-a', MAX)).toBeUndefined();
    await take(leases, MAX, 'holder-b');
  });

  test('are free again when they are released, in several rounds, and only once if released twice', async () => {
    for (let n = 0; n < 3; n += 1) {
      for (const lease of await take(leases, MAX)) lease.release();
      await releasesSent(leases);
    }
    const [first] = await take(leases, MAX);
    first?.release();
    first?.release();
    await releasesSent(leases);
    expect(await leases.acquire('holder-a', MAX)).toBeDefined();
    expect(await leases.acquire('holder-a', MAX)).toBeUndefined();
  });
}

describe('stream leases in memory', () => {
  contract(memoryStreamLeases);
});

describeWithRedis('stream leases in Redis', () => {
  /** Leases that no test outlives, renewed all the time. */
  const LONG = { leaseMs: 600_000, renewMs: 20 };
  /** Leases that no test outlives, and that are not renewed after a test. */
  const KEPT = { leaseMs: 600_000, renewMs: 600_000 };
  /** Leases that are over soon. */
  const SHORT = { leaseMs: 100, renewMs: 20 };
  let server: RedisServer;
  let shared: Redis;
  const open: { close(): void }[] = [];
  beforeAll(async () => {
    server = await startRedis();
    shared = await connected(server.url);
  });
  afterEach(async () => {
    for (const one of open.splice(0)) one.close();
    await server.command('FLUSHALL');
  });
  afterAll(() => {
    shared.close();
    stopRedis();
  });

  async function instance(url = server.url, commandTimeoutMs?: number) {
    const redis = await connected(url, commandTimeoutMs);
    open.push(redis);
    return redis;
  }
  /** An instance whose connection a test can break. */
  async function throughProxy(commandTimeoutMs?: number) {
    const proxy = await faultProxy(server.url);
    open.push(proxy);
    return { proxy, redis: await instance(proxy.url, commandTimeoutMs) };
  }
  const keyOf = (holder: string) => `bot-relay:streams:${keyPart(holder)}`;
  const keys = async () => (await server.command('KEYS', '*')) as string[];
  /** When the first and the last of all leases expire. */
  async function expiries(): Promise<{ first: number; last: number }> {
    const lua = `local all = {}
      for _, key in ipairs(redis.call('KEYS', '*')) do
        local pairs = redis.call('ZRANGE', key, 0, -1, 'WITHSCORES')
        for n = 2, #pairs, 2 do all[#all + 1] = pairs[n] end
      end
      return all`;
    const all = ((await server.command('EVAL', lua, '0')) as string[]).map(Number);
    return { first: Math.min(...all), last: Math.max(...all) };
  }
  async function allRenewed(): Promise<void> {
    const { last } = await expiries();
    await until(async () => (await expiries()).first > last, 20);
  }

  contract(() => redisStreamLeases(shared, KEPT));

  test('have one limit for all instances that share a Redis', async () => {
    const instances = [shared, await instance()].map((connection) => redisStreamLeases(connection, KEPT));
    const asked = Array.from({ length: 10 }, (_, n) => instances[n % 2]?.acquire('holder-a', MAX));
    expect((await Promise.all(asked)).filter(Boolean)).toHaveLength(MAX);
  });

  test('have keys that name nobody and expire, renewed with one command for each, also after SCRIPT FLUSH', async () => {
    const leases = redisStreamLeases(await instance(), LONG);
    await take(leases, MAX);
    await take(leases, MAX, 'holder-b');
    for (const key of await keys()) {
      // The holder is hashed with SHA-256, which has 43 characters in base64url.
      expect(key).toMatch(/^bot-relay:streams:[\w-]{43}$/);
      expect(await server.command('PTTL', key)).not.toBe(-1);
    }
    await allRenewed();
    await server.command('SCRIPT', 'FLUSH');
    await allRenewed();
    await server.command('CONFIG', 'RESETSTAT');
    await allRenewed();
    const stats = String(await server.command('INFO', 'commandstats'));
    const count = (name: string) => Number(new RegExp(`cmdstat_${name}:calls=(\\d+),`).exec(stats)?.[1] ?? 0);
    expect(count('zadd')).toBe(MAX * count('evalsha'));
  });

  test('are renewed for more than a thousand holders', async () => {
    const leases = redisStreamLeases(await instance(), { ...LONG, renewMs: 1000 });
    const holders = Array.from({ length: 1100 }, (_, n) => `holder-${n}`);
    await Promise.all(holders.map((holder) => leases.acquire(holder, 1)));
    await allRenewed();
    expect(await keys()).toHaveLength(holders.length);
  });

  test('expire when their instance does not renew them any more, and those of another stay', async () => {
    const [gone, other] = [await instance(), redisStreamLeases(await instance(), LONG)];
    await take(other, 1);
    await take(redisStreamLeases(gone, SHORT), MAX - 1);
    gone.close();
    for (let n = 0; n < MAX - 1; n += 1) await untilGranted(other);
    expect(await other.acquire('holder-a', MAX)).toBeUndefined();
  });

  test('fail while Redis hangs, and the failed request takes no place afterwards', async () => {
    const { proxy, redis } = await throughProxy(200);
    const leases = redisStreamLeases(redis, LONG);
    const hold = proxy.hold('server', 'EVALSHA');
    await expect(leases.acquire('holder-a', 1)).rejects.toMatchObject(UNAVAILABLE);
    await hold.begun;
    hold.release();
    await untilGranted(redisStreamLeases(shared, KEPT), 1);
  });

  test('are written again after a restart of Redis that lost them, except those released meanwhile', async () => {
    const leases = redisStreamLeases(await instance(), LONG);
    const [first] = await take(leases, MAX);
    await server.stop();
    first?.release();
    await releasesSent(leases);
    await expect(leases.acquire('holder-a', MAX)).rejects.toMatchObject(UNAVAILABLE);
    await server.start();
    // The next renewal writes them.
    await until(async () => (await keys()).length > 0, 20);
    expect(await server.command('ZCARD', (await keys())[0] as string)).toBe(MAX - 1);
    expect(await leases.acquire('holder-a', MAX)).toBeDefined();
    expect(await leases.acquire('holder-a', MAX)).toBeUndefined();
    await answering(shared);
  });

  test('are closed while Redis is away', async () => {
    const { proxy, redis } = await throughProxy();
    const leases = redisStreamLeases(redis);
    const [first] = await take(leases, 1);
    proxy.cut();
    first?.release();
    await leases.close();
  });

  test('released while Redis was away expire, and are not renewed when it is back', async () => {
    const { proxy, redis } = await throughProxy();
    const leases = redisStreamLeases(redis, { leaseMs: 2_000, renewMs: 20 });
    const [first] = await take(leases, MAX);
    proxy.cut();
    first?.release();
    // In order: the release before it has failed, too.
    await expect(redis.onEach((one) => one.ping())).rejects.toMatchObject(UNAVAILABLE);
    proxy.mend();
    await until(async () => (await server.command('ZCARD', keyOf('holder-a'))) === MAX);
    await untilGranted(redisStreamLeases(shared, KEPT));
  });
});
