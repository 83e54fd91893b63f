import { afterAll, expect, test } from '@jest/globals';
import { sleep } from '../harness/clock/sleep.ts';
import { eventually, until } from '../harness/clock/until.ts';
import { closeLogged, messages, openLogged, ping } from '../harness/redis/logged-redis.ts';
import { describeWithRedis, startRedis } from '../harness/redis/redis.ts';

const UNAVAILABLE = { code: 'session_store_unavailable', options: { retryAfter: 1 } };

/** A busy machine is no slow Redis. */
const SLOW = { commandTimeoutMs: 20_000 };
const open = (url: string, lines: string[] = [], observe?: (ms: number, ok: boolean) => void) =>
  openLogged(url, lines, { ...SLOW, ...(observe && { observe }) });

afterAll(closeLogged);

describeWithRedis('the connection to Redis', () => {
  test('connects again after Redis was killed; the log has one line for each change', async () => {
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
  });

  test('says whether Redis answers, with one ping for calls at the same time', async () => {
    const server = await startRedis();
    const redis = open(server.url);
    await eventually(() => ping(redis));
    await server.command('CONFIG', 'RESETSTAT');
    const answers = await Promise.all(Array.from({ length: 50 }, () => redis.answers()));
    expect(new Set(answers)).toEqual(new Set([true]));
    const [, pings] =
      /cmdstat_ping:calls=(\d+)/.exec(String(await server.command('INFO', 'commandstats'))) ?? [];
    // The connection also pings by itself.
    expect(Number(pings)).toBeLessThan(25);
    await server.stop();
    expect(await redis.answers()).toBe(false);
    await server.start();
    await eventually(() => ping(redis));
    expect(await redis.answers()).toBe(true);
  });

  test('calls onListening each time a subscription begins, also if Redis starts later', async () => {
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
  });

  test('stays closed after close()', async () => {
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
  });

  test('reports how long each run took, and whether it succeeded', async () => {
    const seen: [boolean, boolean][] = [];
    const redis = open((await startRedis()).url, [], (ms, ok) => void seen.push([ms > 0, ok]));
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

  test('throws session_store_unavailable for errors of Redis itself', async () => {
    const server = await startRedis();
    const redis = open(server.url);
    await eventually(() => ping(redis));
    await server.command('REPLICAOF', '127.0.0.1', '1');
    const write = redis.run((client) => client.set('a', '1'));
    await expect(write).rejects.toMatchObject({ ...UNAVAILABLE, cause: 'READONLY' });
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
});
