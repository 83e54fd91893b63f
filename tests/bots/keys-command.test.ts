import { PassThrough } from 'node:stream';
import { text } from 'node:stream/consumers';
import { afterAll, afterEach, describe, expect, jest, test } from '@jest/globals';
import { keysCommand } from '../../src/commands/keys.ts';
import { loadConfig } from '../../src/config/config.ts';
import { createLogger } from '../../src/logger.ts';
import { secret } from '../../src/secret.ts';
import { openRedis, type Redis } from '../../src/storage/redis.ts';
import { keyReporter, readKeyReports } from '../../src/watch/key-reports.ts';
import { advanceClocks } from '../harness/clock/advance-clocks.ts';
import { sleep } from '../harness/clock/sleep.ts';
import { answering, describeWithRedis, startRedis, stopRedis } from '../harness/redis/redis.ts';
import { CANARY, expectNoCanary } from '../harness/relay/relay.ts';
import { type RelayAndUpstream, startRelayAndUpstream } from '../harness/relay/relay-and-upstream.ts';
import { plainAnswer, wholeStream } from '../harness/service/raw-upstream.ts';

const [first, second, third] = [CANARY.key, CANARY.secondKey, 'third-key'].map(
  (key) => secret(key).fingerprint,
);
const ENVIRONMENT = {
  UPSTREAM_BASE_URL: 'http://127.0.0.1:9',
  UPSTREAM_API_KEYS: `${CANARY.key},${CANARY.secondKey}`,
  SESSION_SECRETS: CANARY.sessionSecret,
  CHANNEL_SECRET: CANARY.channelSecret,
  BOTS: 'acme/helper,other/*',
};
const TIME = String.raw`\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ`;

async function run(args: string[], environment: Record<string, string> = ENVIRONMENT) {
  const output = new PassThrough();
  const code = await keysCommand(args, loadConfig(environment), output);
  output.end();
  const printed = await text(output);
  expectNoCanary(printed);
  return { code, printed };
}

describe('bot-relay keys', () => {
  test('prints the keys of each bot by fingerprint, and where else to look without Redis', async () => {
    const { code, printed } = await run([]);
    expect(code).toBe(0);
    expect(printed.split('\n')).toEqual([
      'acme/helper',
      `  1  ${first}   worked never   refused never`,
      `  2  ${second}   worked never   refused never`,
      'other/*',
      `  1  ${first}   worked never   refused never`,
      `  2  ${second}   worked never   refused never`,
      '',
      'Without REDIS_URL only the relay itself knows when a key worked: see "upstream key accepted" and',
      '"upstream key rejected" in its log.',
      '',
    ]);
  });

  test('prints JSON', async () => {
    const { code, printed } = await run(['--json'], { ...ENVIRONMENT, BOTS: 'acme/helper' });
    expect(code).toBe(0);
    const never = { lastWorked: null, lastRefused: null };
    expect(JSON.parse(printed)).toEqual({
      shared: false,
      bots: [
        {
          bot: 'acme/helper',
          keys: [
            { position: 1, fingerprint: first, ...never },
            { position: 2, fingerprint: second, ...never },
          ],
        },
      ],
    });
  });

  test('prints that the demo makes its own key', async () => {
    expect(await run([], {})).toEqual({
      code: 0,
      printed: 'In demo mode the relay makes a key of its own at every start.\n',
    });
    expect(JSON.parse((await run(['--json'], {})).printed)).toEqual({ shared: false, bots: [] });
  });

  test.each([[['json']], [['--json', 'more']], [['add', 'key']]])(
    'prints its usage for the arguments %j',
    async (args) => {
      expect(await run(args)).toEqual({
        code: 64,
        printed: expect.stringMatching(/^Usage: bot-relay keys /),
      });
    },
  );

  test('exits with 1 if Redis cannot be used', async () => {
    expect(await run([], { ...ENVIRONMENT, REDIS_URL: 'redis://127.0.0.1:1' })).toEqual({
      code: 1,
      printed: 'Redis cannot be used; npx bot-relay check says why.\n',
    });
  });
});

describeWithRedis('bot-relay keys, with Redis', () => {
  const pairs: RelayAndUpstream[] = [];
  afterEach(async () => {
    for (const pair of pairs.splice(0)) await pair.close();
    stopRedis();
  });

  test('prints when each key last worked and was last refused, over all instances', async () => {
    const { url: REDIS_URL } = await startRedis();
    const instance = async (keys: string, valid: string) => {
      const pair = await startRelayAndUpstream(
        (socket, { all }) =>
          void socket.write(
            all('x-api-key')[0] === valid ? wholeStream('data: a\n\n') : plainAnswer('403 No', []),
          ),
        { BOTS: ENVIRONMENT.BOTS, UPSTREAM_API_KEYS: keys, REDIS_URL },
      );
      pairs.push(pair);
      const body = JSON.stringify({ text: `message ${pairs.length}` });
      expect((await pair.relay.send(pair.cookie, { body })).status).toBe(200);
    };
    const printedOnce = async (enough: RegExp) => {
      for (;;) {
        const { code, printed } = await run([], { ...ENVIRONMENT, REDIS_URL });
        expect(code).toBe(0);
        if (enough.test(printed)) return printed.split('\n');
        await sleep(50);
      }
    };
    await instance(ENVIRONMENT.UPSTREAM_API_KEYS, CANARY.secondKey);
    // An instance that still has another configuration.
    await instance('third-key', 'third-key');
    const lines = await printedOnce(new RegExp(`refused ${TIME}[^]*worked ${TIME}[^]*${third}`));
    expect(lines).toEqual([
      'acme/helper',
      expect.stringMatching(`^  1  ${first}   worked never   refused ${TIME}$`),
      expect.stringMatching(`^  2  ${second}   worked ${TIME}   refused never$`),
      expect.stringMatching(`^  -  ${third}   worked ${TIME}   refused never   \\(not configured here\\)$`),
      'other/*',
      `  1  ${first}   worked never   refused never`,
      `  2  ${second}   worked never   refused never`,
      '',
    ]);
  });
});

const open: Redis[] = [];
afterAll(() => {
  for (const redis of open) redis.close();
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
