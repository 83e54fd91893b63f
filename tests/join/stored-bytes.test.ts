import { afterEach, expect, jest, test } from '@jest/globals';
import { type JoinInstances, runsEnded, startJoinInstances } from '../support/join-instances.ts';
import { bodyOf, DELTA, EVENTS, INIT } from '../support/joining.ts';
import { describeWithRedis } from '../support/redis.ts';
import type { TestRelay } from '../support/relay.ts';
import { until } from '../support/relay-and-upstream.ts';

jest.setTimeout(30_000);

let all: JoinInstances;
afterEach(() => all.close());

const start = (environment: Record<string, string> = {}) =>
  startJoinInstances(2, { METRICS_PORT: '9090', ...environment }, () => [INIT]);

/** What each instance tells. */
const told = () =>
  Promise.all(
    all.relays.map(async (relay: TestRelay) =>
      Number(/^bot_relay_run_stored_bytes (\S+)$/m.exec(await relay.metricsText())?.[1]),
    ),
  );

async function callsOfCommands(): Promise<number> {
  const stats = String(await all.redis.command('INFO', 'commandstats'));
  return [...stats.matchAll(/^cmdstat_hget:calls=(\d+)/gm)].reduce(
    (sum, [, calls]) => sum + Number(calls),
    0,
  );
}

describeWithRedis('what runs take in Redis', () => {
  test('is told by each instance, while they go on and until they are not kept any more', async () => {
    all = await start({ JOIN_KEEP_MS: '0' });
    expect(await told()).toEqual([0, 0]);
    const client = all.say(0);
    await client.waitFor('run.init');
    await until(async () => (await told()).every((bytes) => bytes > INIT.length));
    const [before = 0] = await told();
    all.emit(DELTA);
    await until(async () => (await told()).every((bytes) => bytes > before + DELTA.length));
    const sizes = Number(await all.redis.command('HGET', 'bot-relay:{runs}:sizes', 'all'));
    expect(await told()).toEqual([sizes, sizes]);
    all.emit(...EVENTS.slice(2));
    all.finish();
    await bodyOf(client);
    await runsEnded(all.redis);
    // Its log stays for ten seconds for those who read it.
    expect(Math.min(...(await told()))).toBeGreaterThan(sizes);
    const logs = 'bot-relay:{runs}:logs';
    const [id] = (await all.redis.command('ZRANGE', logs, '0', '0')) as [string];
    await all.redis.command('ZADD', logs, '1', id);
    const another = all.say(1, { customMessageId: 'another-message-01' });
    await another.waitFor('run.init');
    await until(async () => (await told()).every((bytes) => bytes < sizes));
  });

  test('costs one command for each scrape', async () => {
    all = await start();
    const before = await callsOfCommands();
    for (let n = 0; n < 10; n++) await told();
    expect(await callsOfCommands()).toBe(before + 20);
  });

  test('is no number while Redis does not answer', async () => {
    all = await start();
    expect(await told()).toEqual([0, 0]);
    all.redis.pause();
    expect(await told()).toEqual([Number.NaN, Number.NaN]);
    all.redis.resume();
    await until(async () => (await told()).every((bytes) => bytes === 0));
  });
});
