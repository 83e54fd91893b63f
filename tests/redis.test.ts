import { setTimeout as sleep } from 'node:timers/promises';
import { afterEach, expect, test } from '@jest/globals';
import { createLogger } from '../src/logger.ts';
import { secret } from '../src/secret.ts';
import { openRedis, type Redis } from '../src/storage/redis.ts';
import { describeWithRedis, startRedis, stopRedis } from './support/redis.ts';

const UNAVAILABLE = { code: 'session_store_unavailable', options: { retryAfter: 1 } };

const opened: Redis[] = [];
const lines: string[] = [];
function open(url: string, observe?: (ms: number, ok: boolean) => void): Redis {
  const logger = createLogger('info', { write: (line: string) => void lines.push(line) });
  const redis = openRedis({ url: secret(url), logger, ...(observe && { observe }) });
  opened.push(redis);
  return redis;
}

/** Resolves once `attempt` does. */
async function eventually<T>(attempt: () => Promise<T>): Promise<T> {
  for (;;) {
    try {
      return await attempt();
    } catch {
      await sleep(20);
    }
  }
}
const ping = (redis: Redis) => redis.run((client) => client.ping());
const messages = () => lines.map((line) => JSON.parse(line).msg);

afterEach(() => {
  for (const redis of opened.splice(0)) redis.close();
  lines.length = 0;
  stopRedis();
});

describeWithRedis('the connection to Redis', () => {
  test('runs commands', async () => {
    const redis = open((await startRedis()).url);
    await eventually(() => ping(redis));
    await redis.run((client) => client.set('a', '1'));
    expect(await redis.run((client) => client.get('a'))).toBe('1');
  });

  test('tells how long each run took, and whether it went well', async () => {
    const seen: [boolean, boolean][] = [];
    const redis = open((await startRedis()).url, (ms, ok) => void seen.push([ms > 0 && ms < 5000, ok]));
    await eventually(() => ping(redis));
    seen.length = 0;
    await ping(redis);
    await expect(redis.run((client) => client.sendCommand(['NO-SUCH-COMMAND']))).rejects.toMatchObject(
      UNAVAILABLE,
    );
    expect(seen).toEqual([
      [true, true],
      [true, false],
    ]);
  });

  test('stays when nothing is asked for', async () => {
    const redis = open((await startRedis()).url);
    await eventually(() => ping(redis));
    await sleep(2700);
    await ping(redis);
    expect(messages()).toEqual(['redis ready']);
    expect(redis.backAt()).toBeUndefined();
  });

  test('refuses at once while it has never been there, and connects as soon as it is', async () => {
    const server = await startRedis();
    await server.stop();
    const redis = open(server.url);
    const before = performance.now();
    await expect(ping(redis)).rejects.toMatchObject(UNAVAILABLE);
    expect(performance.now() - before).toBeLessThan(100);
    await server.start();
    expect(await eventually(() => ping(redis))).toBe('PONG');
  });

  test('gives up on a paused Redis in under a second, and goes on when that does', async () => {
    const server = await startRedis();
    const redis = open(server.url);
    await eventually(() => ping(redis));
    server.pause();
    const before = performance.now();
    await expect(ping(redis)).rejects.toMatchObject({ ...UNAVAILABLE, cause: 'TIMEOUT' });
    expect(performance.now() - before).toBeLessThan(1000);
    // Long enough for the connection to be given up, from when on nothing has to wait.
    await sleep(3500);
    const later = performance.now();
    await expect(ping(redis)).rejects.toMatchObject({ ...UNAVAILABLE, cause: 'TIMEOUT' });
    expect(performance.now() - later).toBeLessThan(100);
    server.resume();
    expect(JSON.parse(lines[1] as string)).toMatchObject({ msg: 'redis lost', cause: 'TIMEOUT' });
    expect(await eventually(() => ping(redis))).toBe('PONG');
    expect(messages()).toEqual(['redis ready', 'redis lost', 'redis ready']);
  });

  test('connects again after Redis was killed; the log has one line for each change', async () => {
    const server = await startRedis();
    const redis = open(server.url);
    await eventually(() => ping(redis));
    await server.stop();
    await sleep(1200);
    // What came first is told at once; why it is still away, by each command.
    expect(JSON.parse(lines[1] as string)).toMatchObject({ msg: 'redis lost', cause: 'CLOSED' });
    await expect(ping(redis)).rejects.toMatchObject({ ...UNAVAILABLE, cause: 'ECONNREFUSED' });
    const before = performance.now();
    await server.start();
    expect(await eventually(() => ping(redis))).toBe('PONG');
    expect(redis.backAt()).toBeGreaterThan(before);
    expect(messages()).toEqual(['redis ready', 'redis lost', 'redis ready']);
    await server.stop();
    while (messages().length < 4) await sleep(10);
    expect(messages().at(-1)).toBe('redis lost');
  });

  test("takes Redis's own refusals for what they are: out of use", async () => {
    const server = await startRedis();
    const redis = open(server.url);
    await eventually(() => ping(redis));
    await server.command('REPLICAOF', '127.0.0.1', '1');
    const write = redis.run((client) => client.set('a', '1'));
    await expect(write).rejects.toMatchObject({ ...UNAVAILABLE, cause: 'READONLY' });
  });

  test('says in the log that its password is wrong, and shows it nowhere', async () => {
    const { url } = await startRedis('--requirepass', 'right');
    const redis = open(url.replace('://', '://:canary-redis-password@'));
    while (lines.length === 0) await sleep(20);
    expect(JSON.parse(lines[0] as string)).toMatchObject({ msg: 'redis lost', cause: 'WRONGPASS' });
    await expect(ping(redis)).rejects.toMatchObject(UNAVAILABLE);
    expect(lines.join('')).not.toContain('canary');
  });

  test('runs a script in one round trip, and sends it again when Redis has forgotten it', async () => {
    const server = await startRedis();
    const redis = open(server.url);
    await eventually(() => ping(redis));
    const add = redis.script('return redis.call("INCRBY", KEYS[1], ARGV[1])');
    expect(await add(['n'], ['2'])).toBe(2);
    await server.command('CONFIG', 'RESETSTAT');
    expect(await add(['n'], ['3'])).toBe(5);
    const stats = String(await server.command('INFO', 'commandstats'));
    expect(stats).toMatch(/cmdstat_evalsha:calls=1,/);
    expect(stats).not.toContain('cmdstat_eval:');
    await server.command('SCRIPT', 'FLUSH');
    expect(await add(['n'], ['4'])).toBe(9);
  });

  test('hears a channel beside the commands, also after Redis was away', async () => {
    const server = await startRedis();
    const redis = open(server.url);
    const heard: string[] = [];
    await redis.subscribe('news', (message) => heard.push(message));
    await redis.run((client) => client.publish('news', 'one'));
    while (heard.length < 1) await sleep(5);
    await server.stop();
    await server.start();
    await eventually(() => ping(redis));
    await server.command('PUBLISH', 'news', 'two');
    while (heard.length < 2) await sleep(5);
    expect(heard).toEqual(['one', 'two']);
  });

  test('says whether Redis answers, and asks once for all who want to know at once', async () => {
    const server = await startRedis();
    const redis = open(server.url);
    await eventually(() => ping(redis));
    await server.command('CONFIG', 'RESETSTAT');
    const answers = await Promise.all(Array.from({ length: 50 }, () => redis.answers()));
    expect(new Set(answers)).toEqual(new Set([true]));
    const [, pings] =
      /cmdstat_ping:calls=(\d+)/.exec(String(await server.command('INFO', 'commandstats'))) ?? [];
    // Its own connection asks now and then as well.
    expect(Number(pings)).toBeLessThanOrEqual(2);
    server.pause();
    const before = performance.now();
    expect(await redis.answers()).toBe(false);
    expect(performance.now() - before).toBeLessThan(1000);
    server.resume();
    await eventually(() => ping(redis));
    expect(await redis.answers()).toBe(true);
  });

  test('tells whenever it begins to hear a channel, also if Redis comes after the wish', async () => {
    const server = await startRedis();
    await server.stop();
    const redis = open(server.url);
    const heard: string[] = [];
    let listening = 0;
    const first = redis.subscribe(
      'news',
      (message) => heard.push(message),
      () => {
        listening += 1;
      },
    );
    await server.start();
    await first;
    expect(listening).toBe(1);
    await server.command('PUBLISH', 'news', 'one');
    // A server that is killed at once may have answered the publisher and not yet told those who listen.
    while (heard.length < 1) await sleep(5);
    await server.stop();
    await server.start();
    while (listening < 2) await sleep(5);
    // From the moment that it tells, nothing is missed.
    await server.command('PUBLISH', 'news', 'two');
    while (heard.length < 2) await sleep(5);
    expect(heard).toEqual(['one', 'two']);
    expect(listening).toBe(2);
  });

  test('stays closed', async () => {
    const server = await startRedis();
    const redis = open(server.url);
    await eventually(() => ping(redis));
    redis.close();
    redis.close();
    await expect(ping(redis)).rejects.toMatchObject(UNAVAILABLE);
    await sleep(200);
    expect(String(await server.command('INFO', 'clients'))).toMatch(/connected_clients:1\r/);
  });
});
