import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { setTimeout as sleep } from 'node:timers/promises';
import { fileURLToPath } from 'node:url';
import { afterAll, afterEach, beforeAll, beforeEach, describe, expect, test } from '@jest/globals';
import { memoryStreamLeases } from '../../src/guard/memory-stream-leases.ts';
import { redisStreamLeases } from '../../src/guard/redis-stream-leases.ts';
import type { StreamLease, StreamLeases } from '../../src/guard/stream-leases.ts';
import type { Redis } from '../../src/redis.ts';
import { connected, describeWithRedis, type RedisServer, startRedis, stopRedis } from '../support/redis.ts';

const HOLDER = fileURLToPath(new URL('../support/lease-holder.ts', import.meta.url));
const MAX = 3;
const UNAVAILABLE = { code: 'session_store_unavailable' };

/** Takes so many leases, all of which must be granted. */
async function take(leases: StreamLeases, count: number, sessionId = 'one'): Promise<StreamLease[]> {
  const taken = await Promise.all(Array.from({ length: count }, () => leases.acquire(sessionId)));
  expect(taken).not.toContain(undefined);
  return taken as StreamLease[];
}

/** Resolves once a lease is granted, with how long that took in ms. */
async function untilGranted(leases: StreamLeases): Promise<number> {
  const from = performance.now();
  while (!(await leases.acquire('one'))) await sleep(20);
  return performance.now() - from;
}

/** What every implementation of the leases does. */
function contract(make: (max: number) => StreamLeases): void {
  let leases: StreamLeases;
  beforeEach(() => {
    leases = make(MAX);
  });

  test('are as many as one session may have, also when asked for at once', async () => {
    const asked = await Promise.all(Array.from({ length: 10 }, () => leases.acquire('one')));
    expect(asked.filter(Boolean)).toHaveLength(MAX);
    expect(await leases.acquire('one')).toBeUndefined();
  });

  test('of one session leave those of others alone', async () => {
    await take(leases, MAX);
    await take(leases, MAX, 'two');
    expect(await leases.acquire('one')).toBeUndefined();
  });

  test('are free again when they are released, each once however often it is', async () => {
    const [first] = await take(leases, MAX);
    first?.release();
    first?.release();
    await leases.close();
    expect(await leases.acquire('one')).toBeDefined();
    expect(await leases.acquire('one')).toBeUndefined();
  });

  test('leave nothing behind that a session could be refused for', async () => {
    for (let n = 0; n < 3; n += 1) {
      for (const lease of await take(leases, MAX)) lease.release();
      await leases.close();
    }
    await take(leases, MAX);
  });
}

describe('stream leases in memory', () => {
  contract(memoryStreamLeases);
});

describeWithRedis('stream leases in Redis', () => {
  let server: RedisServer;
  let redis: Redis;
  const open: Redis[] = [];
  beforeAll(async () => {
    server = await startRedis();
  });
  beforeEach(async () => {
    redis = await instance();
  });
  afterEach(async () => {
    for (const one of open.splice(0)) one.close();
    await server.command('FLUSHALL');
  });
  afterAll(() => stopRedis());

  async function instance(): Promise<Redis> {
    const one = await connected(server.url);
    open.push(one);
    return one;
  }
  const keys = async () => (await server.command('KEYS', '*')) as string[];

  contract((max) => redisStreamLeases(redis, max));

  test('are one cap for all instances that share a Redis', async () => {
    const instances = [redis, await instance()].map((one) => redisStreamLeases(one, MAX));
    const asked = Array.from({ length: 10 }, (_, n) => instances[n % 2]?.acquire('one'));
    expect((await Promise.all(asked)).filter(Boolean)).toHaveLength(MAX);
  });

  test('last as long as their instance renews them, for however many sessions', async () => {
    const leases = redisStreamLeases(redis, 1, { leaseMs: 600, renewMs: 150 });
    const sessions = Array.from({ length: 1100 }, (_, n) => `session-${n}`);
    await Promise.all(sessions.map((id) => leases.acquire(id)));
    await sleep(1500);
    expect(await keys()).toHaveLength(sessions.length);
    expect(await leases.acquire('session-1099')).toBeUndefined();
  });

  test('are renewed all together, in one command of one timer', async () => {
    const leases = redisStreamLeases(redis, MAX, { leaseMs: 30_000, renewMs: 300 });
    await take(leases, MAX);
    await take(leases, MAX, 'two');
    await sleep(350);
    await server.command('CONFIG', 'RESETSTAT');
    await sleep(950);
    const stats = String(await server.command('INFO', 'commandstats'));
    const calls = Number(/cmdstat_evalsha:calls=(\d+),/.exec(stats)?.[1]);
    expect(calls).toBeGreaterThanOrEqual(2);
    expect(calls).toBeLessThanOrEqual(4);
    expect(stats).toContain(`cmdstat_zadd:calls=${2 * MAX * calls},`);
  });

  test('free themselves when their instance stops renewing, not before', async () => {
    await take(redisStreamLeases(redis, MAX, { leaseMs: 900, renewMs: 300 }), MAX);
    const other = redisStreamLeases(await instance(), MAX, { leaseMs: 900, renewMs: 300 });
    await sleep(1200);
    expect(await other.acquire('one')).toBeUndefined();
    redis.close();
    const took = await untilGranted(other);
    expect(took).toBeGreaterThan(400);
    expect(took).toBeLessThan(2000);
  });

  test('of an instance that is gone free themselves beside those that another still holds', async () => {
    const times = { leaseMs: 900, renewMs: 300 };
    const other = redisStreamLeases(await instance(), MAX, times);
    await take(other, 1);
    await take(redisStreamLeases(redis, MAX, times), MAX - 1);
    redis.close();
    await untilGranted(other);
    while (!(await other.acquire('one'))) await sleep(20);
    await sleep(1200);
    expect(await other.acquire('one')).toBeUndefined();
  });

  test('free themselves when the process that holds them was killed', async () => {
    const child = spawn(process.execPath, [
      '--disable-warning=ExperimentalWarning',
      HOLDER,
      server.url,
      'one',
    ]);
    await once(child.stdout, 'data');
    const leases = redisStreamLeases(redis, MAX);
    await sleep(1500);
    // More than the time of a lease: it is renewed.
    expect(await leases.acquire('one')).toBeUndefined();
    const gone = once(child, 'exit');
    child.kill('SIGKILL');
    expect(await gone).toEqual([null, 'SIGKILL']);
    expect(await untilGranted(leases)).toBeLessThan(3000);
  });

  test('name no session, and are no key for ever', async () => {
    await take(redisStreamLeases(redis, MAX), 1, 'canary-session-id');
    const [key = ''] = await keys();
    expect(key).toMatch(/^bot-relay:streams:[\w-]{43}$/);
    expect(await server.command('PTTL', key)).toBeGreaterThan(20_000);
  });

  test('are refused while Redis is paused, in under a second, and none is left from what was refused', async () => {
    const leases = redisStreamLeases(redis, 1, { leaseMs: 60_000, renewMs: 20_000 });
    server.pause();
    const from = performance.now();
    await expect(leases.acquire('one')).rejects.toMatchObject(UNAVAILABLE);
    expect(performance.now() - from).toBeLessThan(1000);
    server.resume();
    // Redis does now what it was asked to do then.
    await leases.close();
    expect(await leases.acquire('one')).toBeDefined();
  });

  test('go on while Redis is away, are released without it, and are counted again when it is back', async () => {
    const leases = redisStreamLeases(redis, MAX, { leaseMs: 2000, renewMs: 200 });
    const [first] = await take(leases, MAX);
    await server.stop();
    first?.release();
    await leases.close();
    await expect(leases.acquire('one')).rejects.toMatchObject(UNAVAILABLE);
    await server.start();
    while ((await keys()).length === 0) await sleep(20);
    expect(await server.command('ZCARD', (await keys())[0] as string)).toBe(MAX - 1);
    expect(await leases.acquire('one')).toBeDefined();
    expect(await leases.acquire('one')).toBeUndefined();
  });

  test('go on by themselves after SCRIPT FLUSH', async () => {
    const leases = redisStreamLeases(redis, 1, { leaseMs: 600, renewMs: 150 });
    await take(leases, 1);
    await server.command('SCRIPT', 'FLUSH');
    await sleep(900);
    expect(await leases.acquire('one')).toBeUndefined();
  });
});
