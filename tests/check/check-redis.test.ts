import { afterEach, expect, test } from '@jest/globals';
import { checkEnvironment, runCheck } from '../support/check.ts';
import { stopProcesses } from '../support/process.ts';
import { type RawUpstream, startRawUpstream, wholeStream } from '../support/raw-upstream.ts';
import { describeWithRedis, startRedis, stopRedis } from '../support/redis.ts';

let upstream: RawUpstream | undefined;
afterEach(async () => {
  await upstream?.close();
  upstream = undefined;
  stopRedis();
  await stopProcesses();
});

/** Checks with this Redis, without a message. */
const check = (REDIS_URL: string) =>
  runCheck(['--no-messages'], checkEnvironment('http://127.0.0.1:9', { REDIS_URL }));

describeWithRedis('Redis', () => {
  test('that answers is good, with how long it takes', async () => {
    const redis = await startRedis();
    const { rows } = await check(redis.url);
    expect(rows.find((row) => row.check === 'Redis')).toMatchObject({
      state: 'ok',
      about: redis.url.slice('redis://'.length),
      says: expect.stringMatching(/^answers in [\d.]+ ms, not encrypted$/),
      measured: { latencyMs: expect.any(Number) },
    });
  });

  test('has the messages of the check counted with those of all instances', async () => {
    const redis = await startRedis();
    upstream = await startRawUpstream((socket) => void socket.write(wholeStream('data: 1\n\n')));
    // The whole budget of the next 2 s is taken.
    const startedAt = performance.now();
    const slots = 'bot-relay:{budget:acme/helper}:slots';
    const [seconds, micros] = (await redis.command('TIME')) as [string, string];
    await redis.command('ZADD', slots, String(Number(seconds) * 1e6 + Number(micros)), '1 other 1');
    const environment = { REDIS_URL: redis.url, RATE_LIMIT: '1', RATE_WINDOW_MS: '2000' };
    const { of } = await runCheck([], checkEnvironment(upstream.url, environment));
    expect(of('key')).toEqual(['ok works']);
    expect(performance.now() - startedAt).toBeGreaterThan(1_900);
    expect(await redis.command('ZCARD', slots)).toBe(1);
  });
});
