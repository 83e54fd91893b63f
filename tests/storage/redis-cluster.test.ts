import { readFileSync } from 'node:fs';
import { afterAll, beforeAll, expect, jest, test } from '@jest/globals';
import { redisChannelOwners } from '../../src/guard/redis-channel-owners.ts';
import { redisGivenBlobs } from '../../src/guard/redis-given-blobs.ts';
import { createLogger } from '../../src/logger.ts';
import { redisAttempts } from '../../src/pace/redis-attempts.ts';
import { redisBudgets } from '../../src/pace/redis-budgets.ts';
import { redisStreamLeases } from '../../src/pace/redis-stream-leases.ts';
import { redisUnsent } from '../../src/pace/redis-unsent.ts';
import { secret } from '../../src/secret.ts';
import { openRedis, type Redis } from '../../src/storage/redis.ts';
import { keyReporter, readKeyReports } from '../../src/watch/key-reports.ts';
import { countAwakeMs } from '../support/awake.ts';
import { freePort } from '../support/free-port.ts';
import { describeWithRedis } from '../support/redis.ts';
import { type RedisGroup, startCluster } from '../support/redis-cluster.ts';
import { stopProcessesOfRedis } from '../support/redis-process.ts';
import { sleep } from '../support/sleep.ts';
import { ROOT } from '../support/sources.ts';
import { eventually, until } from '../support/until.ts';

jest.setTimeout(60_000);

const opened: Redis[] = [];
function open(url: string, lines: string[] = []): Redis {
  const logger = createLogger('info', { write: (line: string) => void lines.push(line) });
  const redis = openRedis({ url: secret(url), isCluster: true, logger });
  opened.push(redis);
  return redis;
}
const messages = (lines: readonly string[]) => lines.map((line) => JSON.parse(line).msg);
/** So many keys are on all masters. */
const KEYS = Array.from({ length: 40 }, (_, n) => `bot-relay:test:${n}`);

let cluster: RedisGroup;
beforeAll(async () => {
  cluster = await startCluster();
});
afterAll(() => {
  for (const redis of opened.splice(0)) redis.close();
  stopProcessesOfRedis();
});

describeWithRedis('a cluster', () => {
  test('is found by any of its servers, and has each key at its master', async () => {
    const redis = open(cluster.servers[4]?.url as string);
    await redis.ready(5_000);
    await Promise.all(KEYS.map((key) => redis.run((client) => client.set(key, key))));
    const values = await Promise.all(KEYS.map((key) => redis.run((client) => client.get(key))));
    expect(values).toEqual(KEYS);
    const append = redis.script("return redis.call('APPEND', KEYS[1], ARGV[1])");
    const lengths = await Promise.all(KEYS.map((key) => append([key], ['!'])));
    expect(lengths).toEqual(KEYS.map((key) => key.length + 1));
    expect(await redis.onEach((server) => server.ping())).toEqual(['PONG', 'PONG', 'PONG']);
    const held = await redis.onEach((server) => server.dbSize());
    expect(held.every((keys) => keys > 0)).toBe(true);
    expect(held.reduce((sum, keys) => sum + keys)).toBe(KEYS.length);
    const found = new Set<string>();
    let cursor = '0';
    do {
      const page = await redis.run((client) => client.scan(cursor, { MATCH: 'bot-relay:test:*' }));
      cursor = String(page.cursor);
      for (const key of page.keys) found.add(String(key));
    } while (cursor !== '0');
    expect([...found].sort()).toEqual([...KEYS].sort());
  });

  test('is found while servers of the URL are down, without a word in the log', async () => {
    const [dead, more] = [await freePort(), await freePort()];
    const url = `redis://127.0.0.1:${dead},127.0.0.1:${more},${cluster.servers[2]?.host}`;
    const lines: string[] = [];
    for (let n = 0; n < 5; n += 1) {
      const redis = open(url, lines);
      await redis.ready(5_000);
      expect(redis.backAt()).toBeUndefined();
      redis.close();
    }
    expect(messages(lines)).toEqual(Array.from({ length: 5 }, () => 'redis ready'));
    const nowhere = open(`redis://127.0.0.1:${dead},127.0.0.1:${more}`, lines);
    await until(() => lines.length > 5);
    expect(JSON.parse(lines[5] as string)).toMatchObject({ msg: 'redis lost', cause: 'ECONNREFUSED' });
    nowhere.close();
  });

  test('brings a message that a script publishes on any master to every subscriber', async () => {
    const [here, there] = [open(cluster.url), open(cluster.url)];
    const heard: string[] = [];
    for (const redis of [here, there]) await redis.subscribe('bot-relay:news', (text) => heard.push(text));
    const publish = here.script("return redis.call('PUBLISH', 'bot-relay:news', ARGV[1])");
    await Promise.all(KEYS.map((key) => publish([key], [key])));
    await until(() => heard.length >= 2 * KEYS.length);
    expect(heard.sort()).toEqual([...KEYS, ...KEYS].sort());
  });

  test('has what the stores write, one by one, on every master', async () => {
    const redis = open(cluster.url);
    await redis.ready(5_000);
    const users = Array.from({ length: 12 }, (_, n) => `user-${n}`);
    const leases = redisStreamLeases(redis, { leaseMs: 900, renewMs: 200 });
    const held = await Promise.all(users.map((user) => leases.acquire(user, 1)));
    const attempts = redisAttempts(redis)({ name: 'test', maxFailures: 1, windowMs: 60_000 });
    const unsent = redisUnsent(redis, 60_000);
    const stopped: string[] = [];
    unsent.listen((conversation) => stopped.push(conversation));
    const [owners, blobs] = [redisChannelOwners(redis), redisGivenBlobs(redis)];
    const report = keyReporter(redis);
    for (const user of users) {
      const begun = await attempts.begin(user);
      if (begun.state === 'begun') await begun.attempt.failed();
      expect(await attempts.failures(user)).toMatchObject({ count: 1 });
      await owners.claim(user, { owner: user, place: 'p' });
      expect(await owners.find(user, ['p'])).toEqual({ owner: user, isPlaced: true });
      await blobs.remember(user, ['a', 'b']);
      expect(await blobs.areGiven(user, ['a', 'b'])).toBe(true);
      await unsent.enter(user, 'ticket');
      expect(await unsent.stop(user)).toBe(1);
      report({ ring: 'acme', fingerprint: user, outcome: 'worked' });
    }
    await until(() => stopped.length === users.length);
    await until(async () => (await readKeyReports(redis)).length === users.length);
    // Without renewals, the leases would be over by now.
    await sleep(1_500);
    expect(await Promise.all(users.map((user) => leases.acquire(user, 1)))).toEqual(
      users.map(() => undefined),
    );
    for (const lease of held) lease?.release();
    await until(async () => (await leases.acquire('user-0', 1)) !== undefined);
    await leases.close();
  });

  test('lets a user with the documented rights do all of this, also while a slot moves', async () => {
    const text = readFileSync(`${ROOT}/docs/deploy.md`, 'utf8');
    const [, rights = ''] = /^user bot-relay on >PASSWORD (.*)$/m.exec(text) ?? [];
    const [, more = ''] = /The user of a cluster also needs `([^`]+)`/.exec(text) ?? [];
    for (const server of cluster.servers) {
      const words = ['on', '>word', ...rights.split(' '), ...more.split(' ')];
      await server.command('ACL', 'SETUSER', 'bot-relay', ...words);
      await server.command('ACL', 'LOG', 'RESET');
    }
    const redis = open(cluster.url.replace('://', '://bot-relay:word@'));
    await redis.ready(5_000);
    await redis.subscribe('bot-relay:news', () => {});
    const key = 'bot-relay:test:{moving}:';
    const set = redis.script("return redis.call('SET', KEYS[1], ARGV[1])");
    let isOver = false;
    const setting = (async () => {
      for (let n = 0; !isOver; n += 1) {
        expect(await set([key + (n % 1_000)], ['1'])).toBe('OK');
        if (n % 100 === 0) await sleep(1);
      }
    })();
    await sleep(300);
    await cluster.moveSlot(key);
    isOver = true;
    await setting;
    for (const server of cluster.servers) expect(await server.command('ACL', 'LOG')).toEqual([]);
  });

  test('keeps a budget exact, and fails no call, while its slot moves to another master', async () => {
    const lines: string[] = [];
    const redis = open(cluster.url, lines);
    await redis.ready(5_000);
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
    expect(messages(lines)).toEqual(['redis ready']);
    expect(redis.backAt()).toBeUndefined();
  });

  test('is away while a master is lost, and back by itself when its replica has taken over', async () => {
    const lines: string[] = [];
    const redis = open(cluster.url, lines);
    const heard: string[] = [];
    let listening = 0;
    await redis.subscribe(
      'bot-relay:news',
      (text) => heard.push(text),
      () => {
        listening += 1;
      },
    );
    const key = 'bot-relay:test:lost';
    await redis.run((client) => client.set(key, 'kept'));
    const [master] = await Promise.all([cluster.masterOf(key)]);
    await master.command('WAIT', '1', '1000');
    await master.stop();
    await until(() => messages(lines).includes('redis lost'));
    const awakeMs = countAwakeMs();
    await expect(redis.run((client) => client.get(key))).rejects.toMatchObject({
      code: 'session_store_unavailable',
    });
    expect(awakeMs()).toBeLessThan(1_000);
    const lostAt = performance.now();
    expect(await eventually(() => redis.run((client) => client.get(key)))).toBe('kept');
    expect(redis.backAt()).toBeGreaterThan(lostAt);
    expect(messages(lines)).toEqual(['redis ready', 'redis lost', 'redis ready']);
    await until(() => listening === 2);
    await redis.script("return redis.call('PUBLISH', 'bot-relay:news', 'after')")([key], []);
    await until(() => heard.includes('after'));
  });
});
