import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { setTimeout as sleep } from 'node:timers/promises';
import { fileURLToPath } from 'node:url';
import { afterAll, afterEach, beforeAll, beforeEach, describe, expect, test } from '@jest/globals';
import { memoryStreamLeases } from '../../src/pace/memory-stream-leases.ts';
import { redisStreamLeases } from '../../src/pace/redis-stream-leases.ts';
import type { StreamLease, StreamLeases } from '../../src/pace/stream-leases.ts';
import type { Redis } from '../../src/storage/redis.ts';
import { keyPart } from '../../src/storage/redis-key.ts';
import { connected, describeWithRedis, type RedisServer, startRedis, stopRedis } from '../support/redis.ts';
import { type RedisWire, redisWire } from '../support/redis-wire.ts';

const HOLDER = fileURLToPath(new URL('../support/lease-holder.ts', import.meta.url));
const MAX = 3;
const UNAVAILABLE = { code: 'session_store_unavailable' };

/** Takes so many leases, all of which must be granted. */
async function take(leases: StreamLeases, count: number, holder = 'one'): Promise<StreamLease[]> {
  const taken = await Promise.all(Array.from({ length: count }, () => leases.acquire(holder, MAX)));
  expect(taken).not.toContain(undefined);
  return taken as StreamLease[];
}

/** Resolves once a lease is granted, with how long that took in ms. */
async function untilGranted(leases: StreamLeases): Promise<number> {
  const from = performance.now();
  while (!(await leases.acquire('one', MAX))) await sleep(20);
  return performance.now() - from;
}

/** What every implementation of the leases does. */
function contract(make: () => StreamLeases): void {
  let leases: StreamLeases;
  beforeEach(() => {
    leases = make();
  });

  test('are as many as one holder may have, also when asked for at once', async () => {
    const asked = await Promise.all(Array.from({ length: 10 }, () => leases.acquire('one', MAX)));
    expect(asked.filter(Boolean)).toHaveLength(MAX);
    expect(await leases.acquire('one', MAX)).toBeUndefined();
  });

  test('of one holder leave those of others alone', async () => {
    await take(leases, MAX);
    await take(leases, MAX, 'two');
    expect(await leases.acquire('one', MAX)).toBeUndefined();
  });

  test('are free again when they are released, each once however often it is', async () => {
    const [first] = await take(leases, MAX);
    first?.release();
    first?.release();
    await leases.close();
    expect(await leases.acquire('one', MAX)).toBeDefined();
    expect(await leases.acquire('one', MAX)).toBeUndefined();
  });

  test('leave nothing behind that a holder could be refused for', async () => {
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
  const wires: RedisWire[] = [];
  beforeAll(async () => {
    server = await startRedis();
  });
  beforeEach(async () => {
    redis = await instance();
  });
  afterEach(async () => {
    for (const one of open.splice(0)) one.close();
    for (const wire of wires.splice(0)) wire.close();
    await server.command('FLUSHALL');
  });
  afterAll(() => stopRedis());

  async function instance(): Promise<Redis> {
    const one = await connected(server.url);
    open.push(one);
    return one;
  }
  /** A connection over a wire of its own. */
  async function far(): Promise<RedisWire & { readonly redis: Redis }> {
    const wire = await redisWire(server.url);
    wires.push(wire);
    const one = await connected(wire.url);
    open.push(one);
    return { ...wire, redis: one };
  }
  const keys = async () => (await server.command('KEYS', '*')) as string[];
  const keyOf = (holder: string) => `bot-relay:streams:${keyPart(holder)}`;

  contract(() => redisStreamLeases(redis));

  test('are one cap for all instances that share a Redis', async () => {
    const instances = [redis, await instance()].map((one) => redisStreamLeases(one));
    const asked = Array.from({ length: 10 }, (_, n) => instances[n % 2]?.acquire('one', MAX));
    expect((await Promise.all(asked)).filter(Boolean)).toHaveLength(MAX);
  });

  test('last as long as their instance renews them, for however many holders', async () => {
    const leases = redisStreamLeases(redis, { leaseMs: 600, renewMs: 150 });
    const holders = Array.from({ length: 1100 }, (_, n) => `holder-${n}`);
    await Promise.all(holders.map((holder) => leases.acquire(holder, 1)));
    await sleep(1500);
    expect(await keys()).toHaveLength(holders.length);
    expect(await leases.acquire('holder-1099', 1)).toBeUndefined();
  });

  test('are renewed all together, in one command of one timer', async () => {
    const leases = redisStreamLeases(redis, { leaseMs: 30_000, renewMs: 300 });
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
    await take(redisStreamLeases(redis, { leaseMs: 900, renewMs: 300 }), MAX);
    const other = redisStreamLeases(await instance(), { leaseMs: 900, renewMs: 300 });
    await sleep(1200);
    expect(await other.acquire('one', MAX)).toBeUndefined();
    redis.close();
    const took = await untilGranted(other);
    expect(took).toBeGreaterThan(400);
    expect(took).toBeLessThan(2000);
  });

  test('of an instance that is gone free themselves beside those that another still holds', async () => {
    const times = { leaseMs: 900, renewMs: 300 };
    const other = redisStreamLeases(await instance(), times);
    await take(other, 1);
    await take(redisStreamLeases(redis, times), MAX - 1);
    redis.close();
    await untilGranted(other);
    while (!(await other.acquire('one', MAX))) await sleep(20);
    await sleep(1200);
    expect(await other.acquire('one', MAX)).toBeUndefined();
  });

  test('free themselves when the process that holds them was killed', async () => {
    const child = spawn(process.execPath, [
      '--disable-warning=ExperimentalWarning',
      HOLDER,
      server.url,
      'one',
    ]);
    await once(child.stdout, 'data');
    const leases = redisStreamLeases(redis);
    await sleep(1500);
    // More than the time of a lease: it is renewed.
    expect(await leases.acquire('one', MAX)).toBeUndefined();
    const gone = once(child, 'exit');
    child.kill('SIGKILL');
    expect(await gone).toEqual([null, 'SIGKILL']);
    expect(await untilGranted(leases)).toBeLessThan(3000);
  });

  test('name no holder, and are no key for ever', async () => {
    await take(redisStreamLeases(redis), 1, 'canary-holder');
    const [key = ''] = await keys();
    expect(key).toMatch(/^bot-relay:streams:[\w-]{43}$/);
    expect(await server.command('PTTL', key)).toBeGreaterThan(5_000);
  });

  test('are refused while Redis is paused, in under a second, and none is left from what was refused', async () => {
    const leases = redisStreamLeases(redis, { leaseMs: 60_000, renewMs: 20_000 });
    server.pause();
    const from = performance.now();
    await expect(leases.acquire('one', 1)).rejects.toMatchObject(UNAVAILABLE);
    expect(performance.now() - from).toBeLessThan(1000);
    server.resume();
    // Redis does now what it was asked to do then.
    await leases.close();
    expect(await leases.acquire('one', 1)).toBeDefined();
  });

  test('go on while Redis is away, are released without it, and are counted again when it is back', async () => {
    const leases = redisStreamLeases(redis, { leaseMs: 2000, renewMs: 200 });
    const [first] = await take(leases, MAX);
    await server.stop();
    first?.release();
    await leases.close();
    await expect(leases.acquire('one', MAX)).rejects.toMatchObject(UNAVAILABLE);
    await server.start();
    while ((await keys()).length === 0) await sleep(20);
    expect(await server.command('ZCARD', (await keys())[0] as string)).toBe(MAX - 1);
    expect(await leases.acquire('one', MAX)).toBeDefined();
    expect(await leases.acquire('one', MAX)).toBeUndefined();
  });

  test('that were given back while Redis was out of reach are free as soon as it is back', async () => {
    const wire = await far();
    const leases = redisStreamLeases(wire.redis, { leaseMs: 60_000, renewMs: 20_000 });
    // More than one run of a script gives back.
    const taken = await Promise.all(Array.from({ length: 800 }, () => leases.acquire('one', 800)));
    const kept = await take(leases, 1, 'two');
    wire.cut();
    for (const lease of taken) lease?.release();
    await sleep(700);
    const [key = ''] = (await keys()).filter((name) => name === keyOf('one'));
    expect(await server.command('ZCARD', key)).toBe(taken.length);
    wire.mend();
    const from = performance.now();
    while ((await keys()).includes(key) && performance.now() - from < 5000) await sleep(20);
    expect(await keys()).toEqual([keyOf('two')]);
    // It asks no more once Redis has heard it all.
    await sleep(600);
    await server.command('CONFIG', 'RESETSTAT');
    await sleep(1200);
    expect(String(await server.command('INFO', 'commandstats'))).not.toMatch(/cmdstat_(evalsha|zrem):/);
    expect(kept).toHaveLength(1);
  });

  test('that were given back while they were renewed stay free, also when Redis has forgotten the script', async () => {
    const wire = await far();
    const leases = redisStreamLeases(wire.redis, { leaseMs: 60_000, renewMs: 600 });
    const [lease] = await take(leases, 1);
    await server.command('SCRIPT', 'FLUSH');
    // The renewal asks Redis a second time, with the whole script, after the lease was given back.
    wire.slowDown(200);
    await sleep(700);
    lease?.release();
    await sleep(1500);
    expect(await keys()).toEqual([]);
  });

  test('do not keep a relay from closing while Redis is out of reach', async () => {
    const wire = await far();
    const leases = redisStreamLeases(wire.redis);
    const [first] = await take(leases, 1);
    wire.cut();
    first?.release();
    const from = performance.now();
    await leases.close();
    expect(performance.now() - from).toBeLessThan(1000);
  });

  test('go on by themselves after SCRIPT FLUSH', async () => {
    const leases = redisStreamLeases(redis, { leaseMs: 600, renewMs: 150 });
    await leases.acquire('one', 1);
    await server.command('SCRIPT', 'FLUSH');
    await sleep(900);
    expect(await leases.acquire('one', 1)).toBeUndefined();
  });
});
