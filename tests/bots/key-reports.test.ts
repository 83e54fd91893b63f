import { setTimeout as sleep } from 'node:timers/promises';
import { afterEach, beforeEach, expect, jest, test } from '@jest/globals';
import { createLogger } from '../../src/logger.ts';
import { secret } from '../../src/secret.ts';
import { openRedis, type Redis } from '../../src/storage/redis.ts';
import { keyReporter, readKeyReports } from '../../src/watch/key-reports.ts';
import { until } from '../support/pair.ts';
import { describeWithRedis, type RedisServer, startRedis, stopRedis } from '../support/redis.ts';

let server: RedisServer;
let redis: Redis;
beforeEach(async () => {
  server = await startRedis();
  redis = openRedis({ url: secret(server.url), logger: createLogger('silent') });
  await connected();
});
afterEach(() => {
  redis.close();
  stopRedis();
});

/** Resolves once Redis answers. */
async function connected(): Promise<void> {
  for (;;) {
    try {
      await redis.run((client) => client.ping());
      return;
    } catch {
      await sleep(20);
    }
  }
}

const use = (fingerprint: string, outcome: 'worked' | 'refused', ring = 'acme/*') => ({
  ring,
  fingerprint,
  outcome,
});
/** Resolves with what Redis knows, by key and ring, as soon as `enough` says so. */
async function known(enough: (reports: Record<string, object>) => boolean) {
  for (;;) {
    const reports = await readKeyReports(redis);
    const named = Object.fromEntries(
      reports.map(({ fingerprint, ring, ...times }) => [`${fingerprint} ${ring}`, times]),
    );
    if (enough(named)) return named as Record<string, { worked?: Date; refused?: Date }>;
    await sleep(20);
  }
}

describeWithRedis('the reports on keys', () => {
  test('say of each key of each ring when it last worked and was last refused, from all instances', async () => {
    const [one, other] = [keyReporter(redis), keyReporter(redis)];
    const before = Date.now();
    one(use('aaaaaaaa', 'worked'));
    other(use('aaaaaaaa', 'refused'));
    other(use('bbbbbbbb', 'worked', 'odd:name/with : and ü'));
    const reports = await known((all) => Object.values(all).flatMap(Object.keys).length === 3);
    expect(Object.keys(reports).sort()).toEqual(['aaaaaaaa acme/*', 'bbbbbbbb odd:name/with : and ü']);
    const { worked, refused } = reports['aaaaaaaa acme/*'] ?? {};
    for (const time of [worked, refused]) expect(Math.abs(Number(time) - before)).toBeLessThan(10_000);
    expect(reports['bbbbbbbb odd:name/with : and ü']).not.toHaveProperty('refused');
  });

  test('are no more than one a second for a key, however many messages there are, and the last one counts', async () => {
    const scripts = jest.fn(redis.script('return 1'));
    const report = keyReporter({ ...redis, script: () => scripts });
    const end = performance.now() + 2_500;
    let uses = 0;
    while (performance.now() < end) {
      report(use('aaaaaaaa', 'worked'));
      uses++;
      await sleep(5);
    }
    expect(uses).toBeGreaterThan(50);
    expect(scripts.mock.calls.length).toBeGreaterThanOrEqual(2);
    expect(scripts.mock.calls.length).toBeLessThanOrEqual(4);
    await until(() => scripts.mock.calls.length >= 3);
  });

  test('never go back in time', async () => {
    const report = keyReporter(redis);
    report(use('aaaaaaaa', 'worked'));
    const { worked } = (await known((all) => 'aaaaaaaa acme/*' in all))['aaaaaaaa acme/*'] ?? {};
    // An instance that was cut off from Redis comes late with what it knows.
    const clock = jest.spyOn(performance, 'now').mockReturnValueOnce(performance.now() - 60_000);
    keyReporter(redis)(use('aaaaaaaa', 'worked'));
    clock.mockRestore();
    keyReporter(redis)(use('cccccccc', 'worked'));
    const after = await known((all) => 'cccccccc acme/*' in all);
    expect(after['aaaaaaaa acme/*']?.worked).toEqual(worked);
  });

  test('are told when Redis is back, with the time at which it was', async () => {
    const report = keyReporter(redis);
    await server.stop();
    report(use('aaaaaaaa', 'worked'));
    const usedAt = Date.now();
    await sleep(2_500);
    await server.start();
    await connected();
    const { worked } = (await known((all) => 'aaaaaaaa acme/*' in all))['aaaaaaaa acme/*'] ?? {};
    expect(Math.abs(Number(worked) - usedAt)).toBeLessThan(2_000);
  });

  test('are forgotten in the end', async () => {
    keyReporter(redis)(use('aaaaaaaa', 'worked'));
    await known((all) => 'aaaaaaaa acme/*' in all);
    const ttl = Number(await server.command('PTTL', 'bot-relay:key-use:aaaaaaaa:acme/*'));
    const days = ttl / (24 * 60 * 60 * 1000);
    expect(days).toBeGreaterThan(89);
    expect(days).toBeLessThanOrEqual(90);
  });
});
