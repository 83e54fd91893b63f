import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { fileURLToPath } from 'node:url';
import { afterAll, afterEach, beforeAll, beforeEach, describe, expect, jest, test } from '@jest/globals';
import { memoryStreamLeases } from '../../src/pace/memory-stream-leases.ts';
import { redisStreamLeases } from '../../src/pace/redis-stream-leases.ts';
import type { StreamLease, StreamLeases } from '../../src/pace/stream-leases.ts';
import type { Redis } from '../../src/storage/redis.ts';
import { keyPart } from '../../src/storage/redis-key.ts';
import { countAwakeMs } from '../support/awake.ts';
import { connected, describeWithRedis, startRedis, stopRedis } from '../support/redis.ts';
import { startRedisProxy } from '../support/redis-proxy.ts';
import { sleep } from '../support/sleep.ts';
import { whileAwake } from '../support/while-awake.ts';

// A void case is run again, while the cases beside it run.
jest.setTimeout(60_000);

/** A process that holds leases of 900 ms, which it renews every 200 ms. */
const CHILD_SCRIPT = fileURLToPath(new URL('../support/lease-holder.ts', import.meta.url));
/** How many places a holder has in most cases. */
const MAX = 3;
const UNAVAILABLE = { code: 'session_store_unavailable' };

/** Takes this many leases, all of which must be granted. */
async function take(leases: StreamLeases, count: number, holder = 'holder-a'): Promise<StreamLease[]> {
  const taken = await Promise.all(Array.from({ length: count }, () => leases.acquire(holder, MAX)));
  expect(taken).not.toContain(undefined);
  return taken as StreamLease[];
}

/** Asks until the holder gets one more lease; returns how long that took, and how much of it this process was awake. */
async function untilGranted(leases: StreamLeases): Promise<{ ms: number; awake: number }> {
  const from = performance.now();
  const awakeMs = countAwakeMs();
  // On a busy machine, Redis may not answer within its half second: that is no grant.
  const unlessLate = (error: unknown) => void expect(error).toMatchObject(UNAVAILABLE);
  while (!(await leases.acquire('holder-a', MAX).catch(unlessLate))) await sleep(20);
  return { ms: performance.now() - from, awake: awakeMs() };
}

/**
 * Resolves when all releases until now have reached Redis or have failed. Only `close` tells this. The relay does not
 * use the leases after it. Here they are used on, which works, but releases that fail are not tried again.
 */
const releasesSent = (leases: StreamLeases) => leases.close();

/** Tests for every implementation of the leases. */
function contract(make: () => StreamLeases): void {
  let leases: StreamLeases;
  beforeEach(() => {
    leases = make();
  });

  test('are at most as many as one holder may have, also for simultaneous requests', async () => {
    const asked = await Promise.all(Array.from({ length: 10 }, () => leases.acquire('holder-a', MAX)));
    expect(asked.filter(Boolean)).toHaveLength(MAX);
    expect(await leases.acquire('holder-a', MAX)).toBeUndefined();
  });

  test('of one holder do not affect those of others', async () => {
    await take(leases, MAX);
    await take(leases, MAX, 'holder-b');
    expect(await leases.acquire('holder-a', MAX)).toBeUndefined();
  });

  test('are free again when they are released, and only once if released twice', async () => {
    const [first] = await take(leases, MAX);
    first?.release();
    first?.release();
    await releasesSent(leases);
    expect(await leases.acquire('holder-a', MAX)).toBeDefined();
    expect(await leases.acquire('holder-a', MAX)).toBeUndefined();
  });

  test('give back every place when they are released, also after several rounds', async () => {
    for (let n = 0; n < 3; n += 1) {
      for (const lease of await take(leases, MAX)) lease.release();
      await releasesSent(leases);
    }
    await take(leases, MAX);
  });
}

describe('stream leases in memory', () => {
  contract(memoryStreamLeases);
});

describeWithRedis('stream leases in Redis', () => {
  const open: { close(): void }[] = [];
  let shared: Redis;
  beforeAll(async () => {
    shared = (await setUp()).redis;
  });
  afterEach(() => shared.onEach((server) => server.flushAll()));
  afterAll(() => {
    for (const connection of open) connection.close();
    stopRedis();
  });

  /**
   * Starts a Redis for one case, since cases that run side by side must not disturb one another. The servers start one
   * after the other, because many starts at once would keep the machine busy.
   */
  function setUp() {
    const set = settingUp.then(setUpNext);
    settingUp = set.catch(() => {});
    return set;
  }
  let settingUp: Promise<unknown> = Promise.resolve();

  async function setUpNext() {
    const server = await startRedis();
    const instance = async (url = server.url) => {
      const connection = await connected(url);
      open.push(connection);
      return connection;
    };
    const redis = await instance();
    // From now on Redis knows the script that adds a lease.
    const leases = redisStreamLeases(redis);
    for (const lease of await take(leases, 1)) lease.release();
    await releasesSent(leases);
    return {
      server,
      redis,
      instance,
      /** A connection that the test can cut or slow down. */
      async throughProxy() {
        const proxy = await startRedisProxy(server.url);
        open.push(proxy);
        return { ...proxy, redis: await instance(proxy.url) };
      },
      keys: async () => (await server.command('KEYS', '*')) as string[],
    };
  }
  const keyOf = (holder: string) => `bot-relay:streams:${keyPart(holder)}`;

  contract(() => redisStreamLeases(shared));

  test.concurrent('have one limit for all instances that share a Redis', async () => {
    const { redis, instance } = await setUp();
    const instances = [redis, await instance()].map((connection) => redisStreamLeases(connection));
    const asked = Array.from({ length: 10 }, (_, n) => instances[n % 2]?.acquire('holder-a', MAX));
    expect((await Promise.all(asked)).filter(Boolean)).toHaveLength(MAX);
  });

  test.concurrent('are all renewed by one timer, with one command for each holder', async () => {
    const { server, redis } = await setUp();
    const renewMs = 300;
    const leases = redisStreamLeases(redis, { leaseMs: 30_000, renewMs });
    await take(leases, MAX);
    await take(leases, MAX, 'holder-b');
    const commands = async () => String(await server.command('INFO', 'commandstats'));
    await server.command('CONFIG', 'RESETSTAT');
    // After the first renewal, Redis knows the script that renews leases too.
    while (!(await commands()).includes('cmdstat_zadd:')) await sleep(20);
    const from = performance.now();
    await server.command('CONFIG', 'RESETSTAT');
    // Three renewals; one more or less if a timer is late, and more if all of this takes longer.
    await sleep(3 * renewMs + 50);
    const stats = await commands();
    const took = performance.now() - from;
    const calls = Number(/cmdstat_evalsha:calls=(\d+),/.exec(stats)?.[1]) / 2;
    expect(calls).toBeGreaterThanOrEqual(2);
    expect(calls).toBeLessThanOrEqual(took / renewMs + 1);
    expect(stats).toContain(`cmdstat_zadd:calls=${2 * MAX * calls},`);
  });

  test.concurrent(
    'expire when their instance stops renewing them, and not before',
    whileAwake(async () => {
      const { redis, instance } = await setUp();
      const times = { leaseMs: 1500, renewMs: 400 };
      await take(redisStreamLeases(redis, times), MAX);
      const other = redisStreamLeases(await instance(), times);
      await sleep(times.leaseMs + 500);
      expect(await other.acquire('holder-a', MAX)).toBeUndefined();
      redis.close();
      const { ms, awake } = await untilGranted(other);
      // The last renewal was at most `renewMs` before the end; the rest is for late timers.
      expect(ms).toBeGreaterThan(times.leaseMs - times.renewMs - 300);
      expect(awake).toBeLessThan(times.leaseMs + 1100);
    }),
  );

  test.concurrent(
    'of an instance that lost its connection expire, those of another stay',
    whileAwake(async () => {
      const { redis, instance } = await setUp();
      const times = { leaseMs: 1500, renewMs: 400 };
      const other = redisStreamLeases(await instance(), times);
      await take(other, 1);
      await take(redisStreamLeases(redis, times), MAX - 1);
      redis.close();
      // The other instance gets the places of this one, and keeps all `MAX` for longer than a lease lasts.
      for (let n = 0; n < MAX - 1; n += 1) await untilGranted(other);
      await sleep(times.leaseMs + 500);
      expect(await other.acquire('holder-a', MAX)).toBeUndefined();
    }),
  );

  test.concurrent('have keys that do not name the holder, and that expire', async () => {
    const { server, redis, keys } = await setUp();
    await take(redisStreamLeases(redis), 1, 'canary-holder');
    const [key = ''] = await keys();
    // The holder is hashed with SHA-256, which has 43 characters in base64url.
    expect(key).toMatch(/^bot-relay:streams:[\w-]{43}$/);
    // A lease lasts 10 seconds by default.
    expect(await server.command('PTTL', key)).toBeGreaterThan(5_000);
  });

  test.concurrent('fail in under a second while Redis hangs, and the failed request takes no place afterwards', async () => {
    const { server, redis } = await setUp();
    const leases = redisStreamLeases(redis, { leaseMs: 60_000, renewMs: 20_000 });
    server.pause();
    const awakeMs = countAwakeMs();
    await expect(leases.acquire('holder-a', 1)).rejects.toMatchObject(UNAVAILABLE);
    expect(awakeMs()).toBeLessThan(1000);
    server.resume();
    // Redis now runs the commands that it got while it hung.
    await releasesSent(leases);
    expect(await leases.acquire('holder-a', 1)).toBeDefined();
  });

  test.concurrent('are written again after a restart of Redis that lost them, except those released meanwhile', async () => {
    const { server, redis, keys } = await setUp();
    const leases = redisStreamLeases(redis, { leaseMs: 2000, renewMs: 200 });
    const [first] = await take(leases, MAX);
    await server.stop();
    first?.release();
    await releasesSent(leases);
    await expect(leases.acquire('holder-a', MAX)).rejects.toMatchObject(UNAVAILABLE);
    await server.start();
    // The next renewal writes them.
    while ((await keys()).length === 0) await sleep(20);
    expect(await server.command('ZCARD', (await keys())[0] as string)).toBe(MAX - 1);
    expect(await leases.acquire('holder-a', MAX)).toBeDefined();
    expect(await leases.acquire('holder-a', MAX)).toBeUndefined();
  });

  test.concurrent('released while a renewal must resend its script are not taken again', async () => {
    const { server, throughProxy, keys } = await setUp();
    const proxy = await throughProxy();
    const renewMs = 600;
    const leases = redisStreamLeases(proxy.redis, { leaseMs: 60_000, renewMs });
    const [lease] = await take(leases, 1);
    await server.command('SCRIPT', 'FLUSH');
    // Redis does not know the script, and says so 200 ms after the renewal. The lease is released before that, so the
    // second request, with the whole script, adds it again.
    proxy.slowDown(200);
    await sleep(renewMs + 100);
    lease?.release();
    await sleep(1500);
    expect(await keys()).toEqual([]);
  });

  test.concurrent('are closed in under a second while Redis is away', async () => {
    const { throughProxy } = await setUp();
    const proxy = await throughProxy();
    const leases = redisStreamLeases(proxy.redis);
    const [first] = await take(leases, 1);
    proxy.cut();
    first?.release();
    const awakeMs = countAwakeMs();
    await leases.close();
    expect(awakeMs()).toBeLessThan(1000);
  });

  test.concurrent(
    'are renewed also after SCRIPT FLUSH',
    whileAwake(async () => {
      const { server, redis } = await setUp();
      const leaseMs = 1500;
      const leases = redisStreamLeases(redis, { leaseMs, renewMs: 300 });
      await leases.acquire('holder-a', 1);
      await server.command('SCRIPT', 'FLUSH');
      await sleep(leaseMs + 500);
      expect(await leases.acquire('holder-a', 1)).toBeUndefined();
    }),
  );

  // These cases begin when all others are over: many leases at once, or another process, keep the machine busy and
  // would disturb the times that the others measure.
  describe('of many holders, or of another process,', () => {
    test.concurrent(
      'last as long as their instance renews them, for more than a thousand holders',
      whileAwake(async () => {
        const { redis, keys } = await setUp();
        const leaseMs = 1500;
        const leases = redisStreamLeases(redis, { leaseMs, renewMs: 300 });
        // One run of the script renews at most 500.
        const holders = Array.from({ length: 1100 }, (_, n) => `holder-${n}`);
        await Promise.all(holders.map((holder) => leases.acquire(holder, 1)));
        await sleep(2 * leaseMs);
        expect(await keys()).toHaveLength(holders.length);
        expect(await leases.acquire('holder-1099', 1)).toBeUndefined();
      }),
    );

    test.concurrent('released while Redis was away are removed soon after it is back, and nothing is sent after that', async () => {
      const { server, throughProxy, keys } = await setUp();
      const proxy = await throughProxy();
      const leases = redisStreamLeases(proxy.redis, { leaseMs: 60_000, renewMs: 20_000 });
      // One run of the script removes at most 500.
      const taken: Awaited<ReturnType<typeof leases.acquire>>[] = [];
      // Not all at once: each has half a second.
      while (taken.length < 600) {
        const some = Array.from({ length: 100 }, () => leases.acquire('holder-a', 600));
        taken.push(...(await Promise.all(some)));
      }
      await take(leases, 1, 'holder-b');
      proxy.cut();
      for (const lease of taken) lease?.release();
      // Failed releases are tried again every 500 ms.
      await sleep(700);
      const key = keyOf('holder-a');
      expect(await server.command('ZCARD', key)).toBe(taken.length);
      proxy.mend();
      const from = performance.now();
      while ((await keys()).includes(key) && performance.now() - from < 5000) await sleep(20);
      expect(await keys()).toEqual([keyOf('holder-b')]);
      await sleep(600);
      await server.command('CONFIG', 'RESETSTAT');
      // Two more tries would come in this time.
      await sleep(1200);
      expect(String(await server.command('INFO', 'commandstats'))).not.toMatch(/cmdstat_(evalsha|zrem):/);
    });

    test.concurrent(
      'expire when the process that holds them was killed',
      whileAwake(async () => {
        const { server, redis } = await setUp();
        const child = spawn(process.execPath, [
          '--disable-warning=ExperimentalWarning',
          CHILD_SCRIPT,
          server.url,
          'holder-a',
        ]);
        open.push({ close: () => void child.kill('SIGKILL') });
        await once(child.stdout, 'data');
        const leases = redisStreamLeases(redis);
        // Longer than a lease of the child lasts: it has renewed them.
        await sleep(1500);
        expect(await leases.acquire('holder-a', MAX)).toBeUndefined();
        const gone = once(child, 'exit');
        child.kill('SIGKILL');
        expect(await gone).toEqual([null, 'SIGKILL']);
        // A lease lasts 900 ms there; the rest is for a busy machine.
        expect((await untilGranted(leases)).awake).toBeLessThan(3000);
      }),
    );
  });
});
