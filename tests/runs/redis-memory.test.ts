import { afterEach, beforeEach, expect, test } from '@jest/globals';
import { until } from '../harness/clock/until.ts';
import { describeWithRedis } from '../harness/redis/redis.ts';
import { begunRun, complete, endOf, got, joinedRun, say, sentRun } from '../harness/runs/carried-run.ts';
import { nameOf, type RedisStores, redisStores, runOf } from '../harness/runs/run-stores.ts';

let stores: RedisStores;
beforeEach(async () => {
  stores = await redisStores('--maxmemory', '8mb', '--maxmemory-policy', 'noeviction');
});
afterEach(() => stores.close());

async function usedPart(): Promise<number> {
  const info = String(await stores.command('INFO', 'memory'));
  const bytesOf = (name: string) => Number(new RegExp(`^${name}:(\\d+)`, 'm').exec(info)?.[1]);
  return bytesOf('used_memory') / bytesOf('maxmemory');
}

/** Fills Redis with other things. */
async function fill(): Promise<void> {
  for (let n = 0; (await usedPart()) < 0.85; n++) {
    await stores.command('SET', `other:${n}`, 'x'.repeat(100_000));
  }
}

const isStored = async (id: string) =>
  Number(await stores.command('EXISTS', `bot-relay:{c}:log:${id}`)) === 1;

describeWithRedis('a Redis that has little memory left', () => {
  test('stores no answers, but names: nothing runs twice', async () => {
    await fill();
    const [here, there] = [await stores.open(), await stores.open()];
    const run = await begunRun(here, nameOf('k'));
    say(run, 'data: 1\n\n');
    await run.carried?.askForReaders();
    expect(await isStored(run.id)).toBe(false);
    expect(await there.claim(nameOf('k'), runOf(nameOf('k')))).toMatchObject({ state: 'live', id: run.id });
    expect(await joinedRun(there, run).failed).toMatchObject({ code: 'run_not_kept' });
    await complete(run);
    expect(await there.claim(nameOf('k'), runOf(nameOf('k')))).toEqual({ state: 'over' });
    await sentRun(there, nameOf('other'));
  });

  test('stores no more of an answer that has begun: who reads it elsewhere is told', async () => {
    const [here, there] = [await stores.open(), await stores.open()];
    const run = await begunRun(here, nameOf('k'));
    const { sink } = joinedRun(there, run);
    say(run, 'data: 1\n\n');
    await got(sink, 'data: 1\n\n');
    await fill();
    expect(await endOf(sink)).toBe('answer_lost');
    say(run, 'data: 2\n\n');
    expect(sink.text).toBe('data: 1\n\n');
    expect(await joinedRun(there, run).failed).toMatchObject({ code: 'run_not_kept' });
    expect(run.state).toBe('streaming');
    await complete(run);
    expect(await there.find(nameOf('k'))).toEqual({ state: 'over' });
  });

  test('stores answers again when it has room', async () => {
    await fill();
    const store = await stores.open();
    await stores.command('FLUSHALL');
    for (let n = 0; ; n++) {
      const run = await begunRun(store, nameOf(`k${n}`));
      say(run, 'data: 1\n\n');
      await complete(run);
      if (await isStored(run.id)) break;
    }
  });

  test('takes nothing from a log that is full: it goes on with its last bytes', async () => {
    const store = await stores.open({ maxBytes: 65_536 });
    const run = await begunRun(store, nameOf('k'));
    for (let n = 0; n < 300; n++) {
      say(run, `data: ${'x'.repeat(32_000)}\n\n`);
      await run.carried?.askForReaders();
    }
    expect(await usedPart()).toBeLessThan(0.8);
    expect(await isStored(run.id)).toBe(true);
    await until(async () => (await store.find(nameOf('k'))).state === 'live');
  });
});
