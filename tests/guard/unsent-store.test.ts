import { randomUUID } from 'node:crypto';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, afterEach, beforeAll, beforeEach, describe, expect, test } from '@jest/globals';
import { memoryUnsent } from '../../src/pace/memory-unsent.ts';
import { redisUnsent } from '../../src/pace/redis-unsent.ts';
import type { UnsentStore } from '../../src/pace/unsent-store.ts';
import type { Redis } from '../../src/storage/redis.ts';
import { countAwakeMs } from '../support/awake.ts';
import { freePort } from '../support/free-port.ts';
import { connected, describeWithRedis, type RedisServer, startRedis, stopRedis } from '../support/redis.ts';
import { until } from '../support/relay-and-upstream.ts';
import { sleep } from '../support/sleep.ts';

/** How long a ticket is kept, in ms; no case takes so long. */
const KEPT_MS = 600_000;
const UNAVAILABLE = { code: 'session_store_unavailable' };

/** Tests for every implementation. */
function contract(make: () => UnsentStore): void {
  let store: UnsentStore;
  beforeEach(() => {
    store = make();
  });

  test('a message may leave that nobody has stopped', async () => {
    await store.enter('a', '1');
    expect(await store.leave('a', '1')).toBe(true);
    expect(await store.stop('a')).toBe(0);
  });

  test('a stop names all messages of the conversation, and these may not leave', async () => {
    for (const ticket of ['1', '2', '3']) await store.enter('a', ticket);
    await store.leave('a', '2');
    expect(await store.stop('a')).toBe(2);
    expect([await store.leave('a', '1'), await store.leave('a', '3')]).toEqual([false, false]);
    expect(await store.stop('a')).toBe(0);
  });

  test('a stop leaves other conversations alone', async () => {
    await store.enter('a', '1');
    await store.enter('b', '2');
    expect(await store.stop('a')).toBe(1);
    expect(await store.leave('b', '2')).toBe(true);
  });

  test('a message that is entered after a stop is a new one', async () => {
    await store.enter('a', '1');
    await store.stop('a');
    await store.enter('a', '2');
    expect(await store.leave('a', '2')).toBe(true);
    expect(await store.leave('a', '1')).toBe(false);
  });

  test('a message may leave of which the store knows nothing', async () => {
    expect(await store.leave('a', '1')).toBe(true);
  });

  test('when a stop and a send meet, exactly one wins', async () => {
    for (let n = 0; n < 50; n += 1) {
      const ticket = String(n);
      await store.enter('a', ticket);
      const calls: [() => Promise<number>, () => Promise<boolean>] = [
        () => store.stop('a'),
        () => store.leave('a', ticket),
      ];
      const [stopped, left] =
        n % 2 === 0
          ? await Promise.all([calls[0](), calls[1]()])
          : (await Promise.all([calls[1](), calls[0]()])).reverse();
      expect(Number(stopped) + Number(left)).toBe(1);
    }
  });

  test('a listener hears of each stop, also of one that finds no message', async () => {
    const heard: string[] = [];
    store.listen((conversation) => heard.push(conversation));
    while (heard.length === 0) await store.stop('first');
    await store.enter('b', '1');
    await store.stop('b');
    await until(() => heard.includes('b'));
  });
}

describe('unsent messages in memory', () => {
  contract(memoryUnsent);
});

describeWithRedis('unsent messages in Redis', () => {
  let server: RedisServer;
  const open: Redis[] = [];
  const connect = async (url = server.url) => {
    const redis = await connected(url);
    open.push(redis);
    return redis;
  };
  let shared: Redis;
  beforeAll(async () => {
    server = await startRedis();
    shared = await connect();
  });
  afterEach(() => shared.onEach((server) => server.flushAll()));
  afterAll(() => {
    for (const redis of open) redis.close();
    stopRedis();
  });

  contract(() => redisUnsent(shared, KEPT_MS));

  test('are those of all instances, which hear of each stop', async () => {
    const [here, there] = [redisUnsent(shared, KEPT_MS), redisUnsent(await connect(), KEPT_MS)];
    const heard: string[] = [];
    here.listen((conversation) => heard.push(conversation));
    while (heard.length === 0) await there.stop('first');
    await here.enter('a', '1');
    expect(await there.stop('a')).toBe(1);
    await until(() => heard.includes('a'));
    expect(await here.leave('a', '1')).toBe(false);
  });

  test('are in keys that all expire', async () => {
    const store = redisUnsent(shared, KEPT_MS);
    await store.enter('a', '1');
    await store.stop('a');
    await store.enter('a', '2');
    const keys = ((await server.command('KEYS', '*')) as string[]).sort();
    expect(keys).toEqual(['bot-relay:{unsent:a}:stopped', 'bot-relay:{unsent:a}:tickets']);
    for (const key of keys) {
      const left = Number(await server.command('PTTL', key));
      expect(left).toBeGreaterThan(KEPT_MS / 2);
      expect(left).toBeLessThanOrEqual(KEPT_MS);
    }
  });

  test('are forgotten if their instance has died, each at its own time', async () => {
    const store = redisUnsent(shared, KEPT_MS);
    await store.enter('a', 'long');
    await redisUnsent(shared, 1).enter('a', 'short');
    await sleep(20);
    expect(await store.stop('a')).toBe(1);
    expect(await store.leave('a', 'long')).toBe(false);
  });

  test('may leave if Redis has lost its data', async () => {
    const store = redisUnsent(shared, KEPT_MS);
    await store.enter('a', '1');
    await shared.onEach((server) => server.flushAll());
    expect(await store.leave('a', '1')).toBe(true);
  });

  test('are on one node of a cluster', async () => {
    const nodes = join(tmpdir(), `nodes-${randomUUID()}.conf`);
    // Otherwise it is the other port + 10,000, which the system may have given to a connection.
    const port = ['--cluster-port', String(await freePort())];
    const cluster = await startRedis('--cluster-enabled', 'yes', '--cluster-config-file', nodes, ...port);
    await cluster.command('CLUSTER', 'ADDSLOTSRANGE', '0', '16383');
    while (!String(await cluster.command('CLUSTER', 'INFO')).includes('cluster_state:ok'));
    const store = redisUnsent(await connect(cluster.url), KEPT_MS);
    await store.enter('a', '1');
    expect(await store.stop('a')).toBe(1);
    expect(await store.leave('a', '1')).toBe(false);
  }, 20_000);

  test('fail within a second while Redis does not answer', async () => {
    const paused = await startRedis();
    const store = redisUnsent(await connect(paused.url), KEPT_MS);
    await store.enter('a', '1');
    paused.pause();
    const awakeMs = countAwakeMs();
    await Promise.all([
      expect(store.enter('a', '2')).rejects.toMatchObject(UNAVAILABLE),
      expect(store.leave('a', '1')).rejects.toMatchObject(UNAVAILABLE),
      expect(store.stop('a')).rejects.toMatchObject(UNAVAILABLE),
    ]);
    expect(awakeMs()).toBeLessThan(1_000);
    paused.resume();
  });
});
