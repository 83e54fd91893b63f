import { afterAll, expect, jest, test } from '@jest/globals';
import { createLogger } from '../../src/logger.ts';
import { secret } from '../../src/secret.ts';
import { openRedis, type Redis } from '../../src/storage/redis.ts';
import { keyReporter, readKeyReports } from '../../src/watch/key-reports.ts';
import { advanceClocks } from '../harness/clock/advance-clocks.ts';
import { answering, describeWithRedis, startRedis, stopRedis } from '../harness/redis/redis.ts';

const open: Redis[] = [];
afterAll(() => {
  for (const redis of open) redis.close();
  stopRedis();
});

async function setUp() {
  const server = await startRedis();
  const redis = openRedis({ url: secret(server.url), logger: createLogger('silent') });
  open.push(redis);
  return { server, redis: await answering(redis) };
}

const use = (fingerprint: string, outcome: 'worked' | 'refused', ring = 'acme/*') => ({
  ring,
  fingerprint,
  outcome,
});
/** Resolves with the reports in Redis, by key and ring, as soon as `enough` returns true for them. */
async function known(redis: Redis, enough: (reports: Record<string, object>) => boolean) {
  for (;;) {
    // A process that is busy may read the answer of Redis too late.
    const reports = await readKeyReports(redis).catch(() => []);
    const named = Object.fromEntries(
      reports.map(({ fingerprint, ring, ...times }) => [`${fingerprint} ${ring}`, times]),
    );
    if (enough(named)) return named as Record<string, { worked?: Date; refused?: Date }>;
    await new Promise(setImmediate);
  }
}

describeWithRedis('the reports on keys', () => {
  test('have for each key of each ring when it last worked and was last refused, at all instances', async () => {
    const { redis } = await setUp();
    const [one, other] = [keyReporter(redis), keyReporter(redis)];
    const before = Date.now();
    one(use('aaaaaaaa', 'worked'));
    other(use('aaaaaaaa', 'refused'));
    other(use('bbbbbbbb', 'worked', 'odd:name/with : and ü'));
    const reports = await known(redis, (all) => Object.values(all).flatMap(Object.keys).length === 3);
    expect(Object.keys(reports).sort()).toEqual(['aaaaaaaa acme/*', 'bbbbbbbb odd:name/with : and ü']);
    const { worked, refused } = reports['aaaaaaaa acme/*'] ?? {};
    // Times are rounded to ms.
    for (const time of [worked, refused]) expect(Number(time)).toBeGreaterThanOrEqual(before - 2);
    expect(reports['bbbbbbbb odd:name/with : and ü']).not.toHaveProperty('refused');
  });

  test('are sent at most once a second for a key, and the last one too', async () => {
    const { redis } = await setUp();
    const scripts = jest.fn(redis.script('return 1'));
    const report = keyReporter({ ...redis, script: () => scripts });
    jest.useFakeTimers({ doNotFake: ['nextTick', 'queueMicrotask', 'setImmediate', 'performance', 'Date'] });
    try {
      for (let times = 1; times <= 3; times += 1) {
        for (let uses = 0; uses < 20; uses += 1) report(use('aaaaaaaa', 'worked'));
        expect(scripts).toHaveBeenCalledTimes(times);
        jest.advanceTimersByTime(999);
        expect(scripts).toHaveBeenCalledTimes(times);
        jest.advanceTimersByTime(1);
        expect(scripts).toHaveBeenCalledTimes(times + 1);
      }
    } finally {
      jest.useRealTimers();
    }
  });

  test('never go back in time', async () => {
    const { redis } = await setUp();
    const report = keyReporter(redis);
    report(use('aaaaaaaa', 'worked'));
    const { worked } = (await known(redis, (all) => 'aaaaaaaa acme/*' in all))['aaaaaaaa acme/*'] ?? {};
    // An instance that was cut off from Redis sends an old report.
    const clock = jest.spyOn(performance, 'now').mockReturnValueOnce(performance.now() - 60_000);
    keyReporter(redis)(use('aaaaaaaa', 'worked'));
    clock.mockRestore();
    keyReporter(redis)(use('cccccccc', 'worked'));
    const after = await known(redis, (all) => 'cccccccc acme/*' in all);
    expect(after['aaaaaaaa acme/*']?.worked).toEqual(worked);
  });

  test('are sent when Redis is back, with the time of the use', async () => {
    const { server, redis } = await setUp();
    const report = keyReporter(redis);
    await server.stop();
    report(use('aaaaaaaa', 'worked'));
    const usedAt = Date.now();
    advanceClocks({ monotonic: 60_000 });
    await server.start();
    await answering(redis);
    const { worked } = (await known(redis, (all) => 'aaaaaaaa acme/*' in all))['aaaaaaaa acme/*'] ?? {};
    jest.restoreAllMocks();
    // For the reporter, the use is a minute old; times are rounded to ms.
    expect(Number(worked)).toBeGreaterThanOrEqual(usedAt - 60_002);
    expect(Number(worked)).toBeLessThan(usedAt);
  });

  test('expire after 90 days', async () => {
    const { server, redis } = await setUp();
    keyReporter(redis)(use('aaaaaaaa', 'worked'));
    await known(redis, (all) => 'aaaaaaaa acme/*' in all);
    const ttl = Number(await server.command('PTTL', 'bot-relay:key-use:aaaaaaaa:acme/*'));
    const days = ttl / (24 * 60 * 60 * 1000);
    expect(days).toBeGreaterThan(89);
    expect(days).toBeLessThanOrEqual(90);
  });
});
