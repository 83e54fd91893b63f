import { setTimeout as sleep } from 'node:timers/promises';
import { afterAll, expect, test } from '@jest/globals';
import { createLogger } from '../src/logger.ts';
import { secret } from '../src/secret.ts';
import { openRedis, type Redis } from '../src/storage/redis.ts';
import { countAwakeMs } from './support/awake.ts';
import { describeWithRedis, startRedis, stopRedis } from './support/redis.ts';
import { testSideBySide } from './support/side-by-side.ts';
import { eventually, until } from './support/until.ts';

const UNAVAILABLE = { code: 'session_store_unavailable', options: { retryAfter: 1 } };

const opened: Redis[] = [];
/** Its log goes to `lines`. */
function open(url: string, lines: string[] = [], observe?: (ms: number, ok: boolean) => void): Redis {
  const logger = createLogger('info', { write: (line: string) => void lines.push(line) });
  const redis = openRedis({ url: secret(url), logger, ...(observe && { observe }) });
  opened.push(redis);
  return redis;
}

/** What `attempt` resolves with, or `too late` if it took more than `ms`. */
async function within<T>(ms: number, attempt: Promise<T>): Promise<T | 'too late'> {
  const awakeMs = countAwakeMs();
  const result = await attempt;
  return awakeMs() < ms ? result : 'too late';
}
/** The error of `attempt`, or `too late` as above. */
const errorWithin = (ms: number, attempt: Promise<unknown>): Promise<unknown> =>
  within(
    ms,
    attempt.then(
      () => 'no error',
      (error) => error,
    ),
  );
/** Less than a command waits for its answer. */
const AT_ONCE_MS = 250;
const ping = async (redis: Redis) => (await redis.onEach((server) => server.ping()))[0];
const messages = (lines: readonly string[]) => lines.map((line) => JSON.parse(line).msg);

afterAll(() => {
  for (const redis of opened.splice(0)) redis.close();
  stopRedis();
});

describeWithRedis('the connection to Redis', () => {
  // Each waits for times of the connection, with a Redis of its own.
  testSideBySide([
    [
      'stays open without commands',
      async () => {
        const lines: string[] = [];
        const redis = open((await startRedis()).url, lines);
        await eventually(() => ping(redis));
        // Longer than the silence after which a connection is dropped.
        await sleep(5700);
        await ping(redis);
        expect(messages(lines)).toEqual(['redis ready']);
        expect(redis.backAt()).toBeUndefined();
      },
    ],
    [
      'gives up on a paused Redis in less than a second, and goes on when Redis does',
      async () => {
        const lines: string[] = [];
        const server = await startRedis();
        const redis = open(server.url, lines);
        await eventually(() => ping(redis));
        server.pause();
        const timedOut = { ...UNAVAILABLE, cause: 'TIMEOUT' };
        expect(await errorWithin(1000, ping(redis))).toMatchObject(timedOut);
        // When the connection has been dropped, nothing waits.
        await until(() => lines.length >= 2, 20);
        expect(await errorWithin(AT_ONCE_MS, ping(redis))).toMatchObject(timedOut);
        server.resume();
        expect(JSON.parse(lines[1] as string)).toMatchObject({ msg: 'redis lost', cause: 'TIMEOUT' });
        expect(await eventually(() => ping(redis))).toBe('PONG');
        expect(messages(lines)).toEqual(['redis ready', 'redis lost', 'redis ready']);
      },
    ],
    [
      'connects again after Redis was killed; the log has one line for each change',
      async () => {
        const lines: string[] = [];
        const server = await startRedis();
        const redis = open(server.url, lines);
        await eventually(() => ping(redis));
        await server.stop();
        await until(() => lines.length >= 2, 20);
        // The log has the first cause; each command has the current one.
        expect(JSON.parse(lines[1] as string)).toMatchObject({ msg: 'redis lost', cause: 'CLOSED' });
        const refused = { ...UNAVAILABLE, cause: 'ECONNREFUSED' };
        await eventually(() => expect(ping(redis)).rejects.toMatchObject(refused));
        const before = performance.now();
        await server.start();
        expect(await eventually(() => ping(redis))).toBe('PONG');
        expect(redis.backAt()).toBeGreaterThan(before);
        expect(messages(lines)).toEqual(['redis ready', 'redis lost', 'redis ready']);
        await server.stop();
        await until(() => messages(lines).length >= 4, 10);
        expect(messages(lines).at(-1)).toBe('redis lost');
      },
    ],
    [
      'says whether Redis answers, with one ping for calls at the same time',
      async () => {
        const server = await startRedis();
        const redis = open(server.url);
        await eventually(() => ping(redis));
        await server.command('CONFIG', 'RESETSTAT');
        const answers = await Promise.all(Array.from({ length: 50 }, () => redis.answers()));
        expect(new Set(answers)).toEqual(new Set([true]));
        const [, pings] =
          /cmdstat_ping:calls=(\d+)/.exec(String(await server.command('INFO', 'commandstats'))) ?? [];
        // The connection also pings by itself.
        expect(Number(pings)).toBeLessThanOrEqual(2);
        server.pause();
        expect(await within(1000, redis.answers())).toBe(false);
        server.resume();
        await eventually(() => ping(redis));
        expect(await redis.answers()).toBe(true);
      },
    ],
    [
      'calls onListening each time a subscription begins, also if Redis starts later',
      async () => {
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
        // A server that is killed at once may not have sent the message to its subscribers.
        await until(() => heard.length >= 1);
        await server.stop();
        await server.start();
        await until(() => listening >= 2);
        // After onListening, no message is lost.
        await server.command('PUBLISH', 'news', 'two');
        await until(() => heard.length >= 2);
        expect(heard).toEqual(['one', 'two']);
        expect(listening).toBe(2);
      },
    ],
    [
      'stays closed after close()',
      async () => {
        const server = await startRedis();
        const redis = open(server.url);
        await eventually(() => ping(redis));
        redis.close();
        redis.close();
        await expect(ping(redis)).rejects.toMatchObject(UNAVAILABLE);
        const isAlone = async () =>
          String(await server.command('INFO', 'clients')).includes('connected_clients:1\r');
        await until(isAlone, 20);
        await sleep(200);
        expect(await isAlone()).toBe(true);
      },
    ],
  ]);

  // Not side by side, since it keeps the process busy.
  test('takes an answer that has come while this process was too busy to read it', async () => {
    const redis = open((await startRedis()).url);
    await eventually(() => ping(redis));
    const answer = redis.onEach((server) => server.blPop('none', 0.1));
    await sleep(30);
    // Behind this, timers come before what has arrived.
    await new Promise(setImmediate);
    // Longer than a command may take.
    const busyUntil = performance.now() + 700;
    while (performance.now() < busyUntil);
    expect(await answer).toEqual([null]);
  });

  test('waits for an answer after a pause of the whole machine', async () => {
    const server = await startRedis();
    const redis = open(server.url);
    await eventually(() => ping(redis));
    server.pause();
    const answer = ping(redis);
    await sleep(30);
    await new Promise(setImmediate);
    const pausedUntil = performance.now() + 700;
    while (performance.now() < pausedUntil);
    setTimeout(server.resume, 50);
    await answer;
  });

  test('keeps its connection during a pause of three seconds', async () => {
    const lines: string[] = [];
    const redis = open((await startRedis()).url, lines);
    await eventually(() => ping(redis));
    const answer = ping(redis);
    await new Promise(setImmediate);
    const pausedUntil = performance.now() + 3000;
    while (performance.now() < pausedUntil);
    expect(await answer).toBe('PONG');
    expect(await ping(redis)).toBe('PONG');
    expect(messages(lines)).toEqual(['redis ready']);
  });

  test('runs commands', async () => {
    const redis = open((await startRedis()).url);
    await eventually(() => ping(redis));
    await redis.run((client) => client.set('a', '1'));
    expect(await redis.run((client) => client.get('a'))).toBe('1');
  });

  test('reports how long each run took, and whether it succeeded', async () => {
    const seen: [boolean, boolean][] = [];
    const redis = open((await startRedis()).url, [], (ms, ok) => void seen.push([ms > 0 && ms < 5000, ok]));
    await eventually(() => ping(redis));
    seen.length = 0;
    await ping(redis);
    await expect(redis.onEach((server) => server.sendCommand(['NO-SUCH-COMMAND']))).rejects.toMatchObject(
      UNAVAILABLE,
    );
    expect(seen).toEqual([
      [true, true],
      [true, false],
    ]);
  });

  test('refuses commands at once without a server, and connects as soon as there is one', async () => {
    const server = await startRedis();
    await server.stop();
    const redis = open(server.url);
    expect(await errorWithin(AT_ONCE_MS, ping(redis))).toMatchObject(UNAVAILABLE);
    await server.start();
    expect(await eventually(() => ping(redis))).toBe('PONG');
  });

  test('throws session_store_unavailable for errors of Redis itself', async () => {
    const server = await startRedis();
    const redis = open(server.url);
    await eventually(() => ping(redis));
    await server.command('REPLICAOF', '127.0.0.1', '1');
    const write = redis.run((client) => client.set('a', '1'));
    await expect(write).rejects.toMatchObject({ ...UNAVAILABLE, cause: 'READONLY' });
  });

  test('logs that the password is wrong, and never shows the password', async () => {
    const lines: string[] = [];
    const { url } = await startRedis('--requirepass', 'right');
    const redis = open(url.replace('://', '://:canary-redis-password@'), lines);
    await until(() => lines.length !== 0, 20);
    expect(JSON.parse(lines[0] as string)).toMatchObject({ msg: 'redis lost', cause: 'WRONGPASS' });
    await expect(ping(redis)).rejects.toMatchObject(UNAVAILABLE);
    expect(lines.join('')).not.toContain('canary');
  });

  test('runs a script in one round trip, and sends it again if Redis no longer has it', async () => {
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

  test('receives messages of a channel besides the commands, also after a reconnect', async () => {
    const server = await startRedis();
    const redis = open(server.url);
    const heard: string[] = [];
    await redis.subscribe('news', (message) => heard.push(message));
    await redis.onEach((server) => server.publish('news', 'one'));
    await until(() => heard.length >= 1);
    await server.stop();
    await server.start();
    await eventually(() => ping(redis));
    await server.command('PUBLISH', 'news', 'two');
    await until(() => heard.length >= 2);
    expect(heard).toEqual(['one', 'two']);
  });
});
