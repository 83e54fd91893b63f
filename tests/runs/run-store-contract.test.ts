import { afterEach, beforeEach, describe, expect, test } from '@jest/globals';
import { Problem } from '../../src/errors.ts';
import { CLIENT_LEFT } from '../../src/http/client-connection.ts';
import type { Run } from '../../src/runs/run.ts';
import type { RunStore } from '../../src/runs/run-store.ts';
import { until } from '../harness/clock/until.ts';
import { describeWithRedis } from '../harness/redis/redis.ts';
import { readerOf } from '../harness/runs/recording-sink.ts';
import { memoryStores, nameOf, type RunStores, redisStores, runOf } from '../harness/runs/run-stores.ts';

const NAME = nameOf('k');

describe('the store of runs in memory', () => contract(memoryStores));
describeWithRedis('the store of runs in Redis', () => contract(redisStores));

function contract(start: () => Promise<RunStores>): void {
  let stores: RunStores;
  /** Two instances, which are one in memory. */
  let here: RunStore;
  let there: RunStore;
  beforeEach(async () => {
    stores = await start();
    [here, there] = [await stores.open(), await stores.open()];
  });
  afterEach(() => stores.close());

  /** Claims the name of a run, and carries it. */
  async function claimed(name = NAME): Promise<Run> {
    const run = runOf(name);
    expect(await here.claim(name, run)).toEqual({ state: 'claimed' });
    run.carried = here.carry(run);
    return run;
  }

  async function confirmed(name = NAME): Promise<Run> {
    const run = await claimed(name);
    expect(await here.confirm({ ...run, name, conversation: name.conversation })).toBe('confirmed');
    run.sent();
    return run;
  }

  async function ended(run: Run, failure?: unknown): Promise<Run> {
    if (failure === undefined) run.stream.complete();
    run.end(failure);
    await run.stored;
    return run;
  }

  test('gives a free name to one run, and tells all others whose it is', async () => {
    const run = await claimed();
    const live = { state: 'live', id: run.id, requestId: run.requestId };
    expect(await there.claim(NAME, runOf(NAME))).toEqual(live);
    expect(await here.claim(NAME, runOf(NAME))).toEqual(live);
    expect(await there.find(NAME)).toEqual(live);
  });

  test('gives a name to one of many that ask for it at the same time', async () => {
    const all = Array.from({ length: 20 }, (_, n) => (n % 2 ? here : there).claim(NAME, runOf(NAME)));
    const states = (await Promise.all(all)).map(({ state }) => state);
    expect(states.filter((state) => state === 'claimed')).toHaveLength(1);
    expect(states.filter((state) => state === 'live')).toHaveLength(19);
  });

  test('does not know a name that nobody has claimed', async () => {
    expect(await here.find(NAME)).toEqual({ state: 'free' });
    expect(await here.newest({ conversation: 'c', message: 'message-of-k' })).toEqual({ state: 'over' });
  });

  test('keeps the name of a run that has ended well', async () => {
    const run = await ended(await confirmed());
    const kept = { state: 'kept', id: run.id, requestId: run.requestId };
    expect(await there.claim(NAME, runOf(NAME))).toEqual(kept);
    expect(await there.find(NAME)).toEqual(kept);
  });

  test('frees the name of a run that was not sent', async () => {
    await ended(await claimed(), new Problem('rate_limited', 'No.'));
    expect(await there.find(NAME)).toEqual({ state: 'free' });
    expect(await there.claim(NAME, runOf(NAME))).toEqual({ state: 'claimed' });
  });

  test('frees a name that is not kept after each end', async () => {
    const name = nameOf('k', { outlivesRun: false });
    await ended(await confirmed(name));
    expect(await there.find(name)).toEqual({ state: 'free' });
  });

  test('remembers a name whose run was given up', async () => {
    const run = await confirmed();
    run.beginStream(new Map());
    await ended(run, CLIENT_LEFT);
    expect(await there.claim(NAME, runOf(NAME))).toEqual({ state: 'over' });
  });

  test('tells the newest run of a message id', async () => {
    const message = { conversation: 'c', message: 'm' };
    const first = await confirmed(nameOf('k1', { message: 'm' }));
    expect(await there.newest(message)).toMatchObject({ state: 'live', id: first.id, key: 'k1' });
    const second = await claimed(nameOf('k2', { message: 'm' }));
    const newest = { id: second.id, key: 'k2', requestId: second.requestId };
    expect(await there.newest(message)).toEqual({ state: 'live', ...newest });
    await ended(first);
    expect(await there.newest(message)).toEqual({ state: 'live', ...newest });
    second.sent();
    await ended(second);
    expect(await there.newest(message)).toEqual({ state: 'kept', ...newest });
  });

  test('forgets the names of ended runs of a conversation, and of no others', async () => {
    const live = await confirmed(nameOf('live'));
    await ended(await confirmed(nameOf('kept')));
    const over = await confirmed(nameOf('over'));
    await ended(over, CLIENT_LEFT);
    const other = await ended(await confirmed(nameOf('other', { conversation: 'd' })));
    await there.forget('c');
    expect(await here.find(nameOf('kept'))).toEqual({ state: 'free' });
    expect(await here.newest({ conversation: 'c', message: 'message-of-kept' })).toEqual({ state: 'over' });
    expect(await here.find(nameOf('over'))).toEqual({ state: 'free' });
    expect(await here.find(nameOf('live'))).toMatchObject({ state: 'live', id: live.id });
    expect(await here.newest({ conversation: 'c', message: 'message-of-live' })).toMatchObject({
      id: live.id,
    });
    expect(await here.find(nameOf('other', { conversation: 'd' }))).toMatchObject({ id: other.id });
  });

  test.each([
    ['over', { keepMs: 100, rememberMs: 60_000 }],
    ['free', { keepMs: 100, rememberMs: 200 }],
  ])(
    'keeps an answer, and remembers its name, as long as it was told: in the end it is %s',
    async (end, times) => {
      await stores.close();
      stores = await start();
      here = await stores.open({ times });
      await ended(await confirmed());
      await until(async () => (await here.find(NAME)).state === end);
    },
  );

  test('lets a run leave that has its name, and again after a refusal', async () => {
    const run = await confirmed();
    readerOf(run);
    run.refused();
    expect(await here.confirm({ ...run, name: NAME, conversation: NAME.conversation })).toBe('confirmed');
    expect(await there.claim(NAME, runOf(NAME))).toMatchObject({ state: 'live', id: run.id });
  });

  test('lets a run without a name leave', async () => {
    const unnamed = { id: 'r', name: undefined, conversation: undefined, waitsSince: performance.now() };
    expect(await here.confirm(unnamed)).toBe('confirmed');
  });
}
