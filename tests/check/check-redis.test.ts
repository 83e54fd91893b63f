import { afterEach, expect, test } from '@jest/globals';
import { checkEnvironment, runCheck } from '../support/check.ts';
import { freshFolder, stopProcesses } from '../support/process.ts';
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
const check = (REDIS_URL: string, more: Record<string, string> = {}) =>
  runCheck(['--no-messages'], checkEnvironment('http://127.0.0.1:9', { REDIS_URL, ...more }));

describeWithRedis('Redis', () => {
  test('that answers is ok, with the time that it takes', async () => {
    const redis = await startRedis();
    const { rows } = await check(redis.url);
    expect(rows.find((row) => row.check === 'Redis')).toMatchObject({
      state: 'ok',
      about: redis.url.slice('redis://'.length),
      says: expect.stringMatching(/^answers in [\d.]+ ms, not encrypted$/),
      measured: { latencyMs: expect.any(Number) },
    });
  });

  const EVICTS = (policy: string) => `may evict what it holds (maxmemory-policy ${policy}): `;
  const OWNERS = 'with CHANNELS=owned it holds the owners of the conversations';
  const SESSIONS = 'a session that it evicts is signed out';
  const NOT_WRITTEN = `note does not write each change to disk (appendonly no): ${OWNERS}`;

  test.each([
    ['scoped', 'noeviction', 'no', []],
    ['scoped', 'allkeys-lru', 'no', [`note ${EVICTS('allkeys-lru')}${SESSIONS}`]],
    ['owned', 'noeviction', 'yes', []],
    ['owned', 'noeviction', 'no', [NOT_WRITTEN]],
    ['owned', 'allkeys-lfu', 'yes', [`problem ${EVICTS('allkeys-lfu')}${OWNERS}`]],
    ['owned', 'volatile-ttl', 'yes', [`note ${EVICTS('volatile-ttl')}${SESSIONS}`]],
  ])('with CHANNELS=%s, maxmemory-policy %s and appendonly %s must keep what it holds', async (...given) => {
    const [CHANNELS, policy, appendonly, expected] = given;
    const disk = ['--appendonly', appendonly, '--dir', freshFolder()];
    const redis = await startRedis('--maxmemory-policy', policy, ...disk);
    const [, ...found] = (await check(redis.url, { CHANNELS })).of('Redis');
    expect(found).toEqual(expected);
  });

  test('may forbid to ask what it keeps', async () => {
    const redis = await startRedis();
    await redis.command('ACL', 'SETUSER', 'default', '-info');
    const [, ...found] = (await check(redis.url)).of('Redis');
    expect(found).toEqual(['note does not tell with INFO whether it evicts or writes to disk']);
  });

  test('counts the messages of the check together with those of all instances', async () => {
    const redis = await startRedis();
    upstream = await startRawUpstream((socket) => void socket.write(wholeStream('data: 1\n\n')));
    // Uses up the whole budget of the next 5 s, for which the slot of the check is seen afterwards, too.
    const startedAt = performance.now();
    const slots = 'bot-relay:{budget:acme/helper}:slots';
    const [seconds, micros] = (await redis.command('TIME')) as [string, string];
    await redis.command('ZADD', slots, String(Number(seconds) * 1e6 + Number(micros)), '1 other 1');
    const environment = { REDIS_URL: redis.url, RATE_LIMIT: '1', RATE_WINDOW_MS: '5000' };
    const { of } = await runCheck([], checkEnvironment(upstream.url, environment));
    expect(of('key')).toEqual(['ok works']);
    expect(performance.now() - startedAt).toBeGreaterThan(4_900);
    expect(await redis.command('ZCARD', slots)).toBe(1);
  });
});
