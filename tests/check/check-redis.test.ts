import { afterAll, afterEach, beforeAll, expect, jest, test } from '@jest/globals';
import { describeWithRedis, startRedis, stopRedis } from '../harness/redis/redis.ts';
import { checkEnvironment, runCheck } from '../harness/relay/check.ts';
import { stopProcesses } from '../harness/relay/process.ts';
import { type RawUpstream, startRawUpstream, wholeStream } from '../harness/service/raw-upstream.ts';

// The clock stands still, so that Redis is quick, however busy the machine is.
beforeAll(() => void jest.spyOn(performance, 'now').mockReturnValue(0));
afterAll(() => void jest.restoreAllMocks());

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
  test('that answers is ok, with the time that it takes', async () => {
    const redis = await startRedis();
    const { rows } = await check(redis.url);
    expect(rows.find((row) => row.check === 'Redis')).toMatchObject({
      state: 'ok',
      about: redis.url.slice('redis://'.length),
      says: 'answers in 0.0 ms, not encrypted',
      measured: { latencyMs: 0 },
    });
  });

  test.each([
    ['noeviction', []],
    [
      'allkeys-lru',
      [
        'problem may evict what it holds (maxmemory-policy allkeys-lru): a session that it evicts is signed out, and a message whose name it evicts can run twice',
      ],
    ],
  ])('with maxmemory-policy %s must keep what it holds', async (policy, expected) => {
    const redis = await startRedis('--maxmemory-policy', policy);
    const [, ...found] = (await check(redis.url)).of('Redis');
    expect(found).toEqual(expected);
  });

  test('may forbid to ask what it keeps', async () => {
    const redis = await startRedis();
    await redis.command('ACL', 'SETUSER', 'default', '-info');
    const [, ...found] = (await check(redis.url)).of('Redis');
    expect(found).toEqual(['note does not tell with INFO whether it evicts']);
  });

  test('counts the messages of the check together with those of all instances', async () => {
    const redis = await startRedis();
    upstream = await startRawUpstream((socket) => void socket.write(wholeStream('data: 1\n\n')));
    // Uses up the whole budget of a time that is longer than the check waits.
    const slots = 'bot-relay:{budget:acme/helper}:slots';
    const [seconds, micros] = (await redis.command('TIME')) as [string, string];
    await redis.command('ZADD', slots, String(Number(seconds) * 1e6 + Number(micros)), '1 other 1');
    const environment = { REDIS_URL: redis.url, RATE_LIMIT: '1', RATE_WINDOW_MS: '60000' };
    const { of } = await runCheck([], checkEnvironment(upstream.url, environment));
    expect(of('key')).toEqual(['problem the bot takes no more messages right now']);
    expect(upstream.requests).toEqual([]);
  });
});
