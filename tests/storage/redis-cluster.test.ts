import { readFileSync } from 'node:fs';
import { afterAll, beforeAll, expect, test } from '@jest/globals';
import { redisGivenBlobs } from '../../src/guard/redis-given-blobs.ts';
import { createLogger } from '../../src/logger.ts';
import { redisAttempts } from '../../src/pace/redis-attempts.ts';
import { redisStreamLeases } from '../../src/pace/redis-stream-leases.ts';
import { heldBytes } from '../../src/relay/message/held-bytes.ts';
import { redisRunStore } from '../../src/runs/redis-run-store.ts';
import { Run } from '../../src/runs/run.ts';
import type { RunName } from '../../src/runs/run-name.ts';
import { secret } from '../../src/secret.ts';
import { openRedis, type Redis } from '../../src/storage/redis.ts';
import { keyReporter, readKeyReports } from '../../src/watch/key-reports.ts';
import { eventually, until } from '../harness/clock/until.ts';
import { ROOT } from '../harness/documents/sources.ts';
import { describeWithRedis, stopRedis } from '../harness/redis/redis.ts';
import { type RedisGroup, startCluster } from '../harness/redis/redis-cluster.ts';
import { freePort } from '../harness/relay/free-port.ts';
import { runSealer } from '../harness/relay/run-sealer.ts';

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

const RUNS = {
  times: { keepMs: 60_000, rememberMs: 60_000, maxWaitMs: 60_000, maxExecutionMs: 60_000 },
  maxBytes: 1 << 20,
};
function runOf(conversation: string): Run {
  const name = { conversation, message: `message-of-${conversation}`, key: conversation, outlivesRun: true };
  return new Run({
    ...{
      id: `run-of-${conversation}`,
      name,
      requestId: 'request',
      conversation,
      waitsSince: performance.now(),
      graceMs: 0,
    },
    ...{ maxBytes: RUNS.maxBytes, bound: heldBytes(RUNS.maxBytes), onEnd() {}, onGrace() {} },
  });
}

let cluster: RedisGroup;
beforeAll(async () => {
  cluster = await startCluster();
});
afterAll(() => {
  for (const redis of opened.splice(0)) redis.close();
  stopRedis();
});

describeWithRedis('a cluster', () => {
  test('is found by any of its servers, and has each key at its master', async () => {
    const redis = open(cluster.servers[4]?.url as string);
    await redis.ready(30_000);
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
      await redis.ready(30_000);
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
    await redis.ready(30_000);
    const users = Array.from({ length: 12 }, (_, n) => `user-${n}`);
    const leases = redisStreamLeases(redis, { leaseMs: 60_000, renewMs: 100 });
    const held = await Promise.all(users.map((user) => leases.acquire(user, 1)));
    const attempts = redisAttempts(redis)({ name: 'test', maxFailures: 1, windowMs: 60_000 });
    const runs = redisRunStore(redis, runSealer, RUNS);
    const stopped: string[] = [];
    runs.listen((conversation) => stopped.push(conversation));
    const blobs = redisGivenBlobs(redis);
    const report = keyReporter(redis);
    for (const user of users) {
      const begun = await attempts.begin(user);
      if (begun.state === 'begun') await begun.attempt.failed();
      expect(await attempts.failures(user)).toMatchObject({ count: 1 });
      await blobs.remember(user, ['a', 'b']);
      expect(await blobs.areGiven(user, ['a', 'b'])).toBe(true);
      const [run, followed] = [runOf(user), runOf(user)];
      expect(await runs.claim(run.name as RunName, run)).toEqual({ state: 'claimed' });
      expect(await runs.stop(user)).toBe(1);
      run.carried = runs.carry(run);
      run.sent();
      run.beginStream(new Map());
      run.stream.write(Buffer.from(user), false);
      run.stream.complete();
      run.end();
      await run.stored;
      followed.follow(run);
      await runs.follow(followed);
      expect([String(followed.stream.log.read(0)?.bytes), followed.stream.ended]).toEqual([
        user,
        { problem: undefined },
      ]);
      report({ ring: 'acme', fingerprint: user, outcome: 'worked' });
    }
    await until(() => stopped.length === users.length);
    await until(async () => (await readKeyReports(redis)).length === users.length);
    // All leases are renewed, at each master.
    await redis.onEach((server) => server.configResetStat());
    await until(async () => {
      const stats = await redis.onEach((server) => server.info('commandstats'));
      return stats.every((text) => text.includes('cmdstat_evalsha:'));
    });
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
    await redis.ready(30_000);
    await redis.subscribe('bot-relay:news', () => {});
    const key = 'bot-relay:test:{moving}:';
    const set = redis.script("return redis.call('SET', KEYS[1], ARGV[1])");
    let isOver = false;
    let sets = 0;
    const setting = (async () => {
      for (let n = 0; !isOver; n += 1) {
        sets = n;
        expect(await set([key + (n % 1_000)], ['1'])).toBe('OK');
        if (n % 100 === 0) await new Promise(setImmediate);
      }
    })();
    await until(() => sets > 100);
    await cluster.moveSlot(key);
    isOver = true;
    await setting;
    for (const server of cluster.servers) expect(await server.command('ACL', 'LOG')).toEqual([]);
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
    await expect(redis.run((client) => client.get(key))).rejects.toMatchObject({
      code: 'session_store_unavailable',
    });
    const lostAt = performance.now();
    expect(await eventually(() => redis.run((client) => client.get(key)))).toBe('kept');
    expect(redis.backAt()).toBeGreaterThan(lostAt);
    expect(messages(lines)).toEqual(['redis ready', 'redis lost', 'redis ready']);
    await until(() => listening === 2);
    await redis.script("return redis.call('PUBLISH', 'bot-relay:news', 'after')")([key], []);
    await until(() => heard.includes('after'));
  });
});
