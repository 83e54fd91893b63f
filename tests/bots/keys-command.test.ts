import { PassThrough } from 'node:stream';
import { text } from 'node:stream/consumers';
import { afterEach, describe, expect, test } from '@jest/globals';
import { keysCommand } from '../../src/commands/keys.ts';
import { loadConfig } from '../../src/config/config.ts';
import { secret } from '../../src/secret.ts';
import { sleep } from '../harness/clock/sleep.ts';
import { describeWithRedis, startRedis, stopRedis } from '../harness/redis/redis.ts';
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
