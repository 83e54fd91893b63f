import { afterAll, afterEach, beforeAll, beforeEach, describe, expect, test } from '@jest/globals';
import { Problem } from '../../src/errors.ts';
import { CLIENT_LEFT } from '../../src/http/client-connection.ts';
import { MemoryRunStore } from '../../src/runs/memory-run-store.ts';
import type { RunStore } from '../../src/runs/run-store.ts';
import { until } from '../harness/clock/until.ts';
import { describeWithRedis } from '../harness/redis/redis.ts';
import {
  begunRun,
  claimedRun,
  confirm,
  end,
  joinedRun,
  nameOf,
  readerOf,
  runOf,
  say,
  sentRun,
} from '../harness/runs/carried-run.ts';
import {
  FaultyRedis,
  memoryStores,
  type RedisStores,
  type RunStores,
  redisStores,
  TIMES,
} from '../harness/runs/run-stores.ts';

const NAME = nameOf('k');
const NEWEST = { conversation: 'c', message: 'message-of-k' };

describe('the store of runs in memory', () => contract(memoryStores));
describeWithRedis('the store of runs in Redis', () => contract(redisStores));

function contract(start: () => Promise<RunStores>): void {
  let stores: RunStores;
  /** Two instances, which are one in memory. */
  let here: RunStore;
  let there: RunStore;
  beforeAll(async () => {
    stores = await start();
  });
  beforeEach(async () => {
    [here, there] = [await stores.open(), await stores.open()];
  });
  afterEach(() => stores.reset());
  afterAll(() => stores.close());

  test('gives a free name to one run of many that ask at the same time, and tells the others whose it is', async () => {
    expect(await here.find(NAME)).toEqual({ state: 'free' });
    expect(await here.newest(NEWEST)).toEqual({ state: 'over' });
    const runs = Array.from({ length: 20 }, () => runOf(NAME));
    const all = await Promise.all(runs.map((run, n) => (n % 2 ? here : there).claim(NAME, run)));
    const { id, requestId } = runs[all.findIndex(({ state }) => state === 'claimed')] ?? {};
    const live = { state: 'live', id, requestId };
    expect(all.filter(({ state }) => state !== 'claimed')).toEqual(Array(19).fill(live));
    for (const store of [here, there]) expect(await store.find(NAME)).toEqual(live);
  });

  test.each([
    ['keeps', 'that has ended well', sentRun, true, undefined, 'kept'],
    ['frees', 'that was not sent', claimedRun, true, new Problem('rate_limited', 'No.'), 'free'],
    ['frees', 'whose name does not outlive it', sentRun, false, undefined, 'free'],
    ['remembers', 'that was given up', begunRun, true, CLIENT_LEFT, 'over'],
  ] as const)('%s the name of a run %s', async (_what, _which, begin, outlivesRun, failure, state) => {
    const name = nameOf('k', { outlivesRun });
    const run = await begin(here, name);
    await end(run, failure);
    const found = { state, ...(state === 'kept' && { id: run.id, requestId: run.requestId }) };
    expect(await there.find(name)).toEqual(found);
    const other = runOf(name);
    expect(await there.claim(name, other)).toEqual(state === 'free' ? { state: 'claimed' } : found);
  });

  test('tells the newest run of a message id', async () => {
    const message = { conversation: 'c', message: 'm' };
    const first = await sentRun(here, nameOf('k1', { message: 'm' }));
    expect(await there.newest(message)).toMatchObject({ state: 'live', id: first.id, key: 'k1' });
    const second = await claimedRun(here, nameOf('k2', { message: 'm' }));
    const newest = { id: second.id, key: 'k2', requestId: second.requestId };
    expect(await there.newest(message)).toEqual({ state: 'live', ...newest });
    await end(first);
    expect(await there.newest(message)).toEqual({ state: 'live', ...newest });
    second.sent();
    await end(second);
    expect(await there.newest(message)).toEqual({ state: 'kept', ...newest });
  });

  test('forgets the names of ended runs of a conversation, and of no others', async () => {
    const live = await sentRun(here, nameOf('live'));
    await end(await sentRun(here, nameOf('kept')));
    await end(await sentRun(here, nameOf('over')), CLIENT_LEFT);
    const other = nameOf('other', { conversation: 'd' });
    await end(await sentRun(here, other));
    await there.forget('c');
    for (const key of ['kept', 'over']) {
      expect(await here.find(nameOf(key))).toEqual({ state: 'free' });
      expect(await here.newest({ ...NEWEST, message: `message-of-${key}` })).toEqual({ state: 'over' });
    }
    expect(await here.find(nameOf('live'))).toMatchObject({ state: 'live', id: live.id });
    expect(await here.newest({ ...NEWEST, message: 'message-of-live' })).toMatchObject({ id: live.id });
    expect(await here.find(other)).toMatchObject({ state: 'kept' });
  });

  // The clock of Redis counts whole ms.
  test.each([
    ['keeps an answer, and remembers its name after that,', 'over', 99, { keepMs: 100, rememberMs: 60_000 }],
    ['remembers a name', 'free', 249, { keepMs: 50, rememberMs: 200 }],
  ])('%s as long as it was told', async (_what, state, leastMs, times) => {
    await stores.reset();
    here = await stores.open({ times });
    const from = performance.now();
    await end(await sentRun(here, NAME));
    await until(async () => (await here.find(NAME)).state === state);
    expect(performance.now() - from).toBeGreaterThanOrEqual(leastMs);
  });

  test('lets a run leave that has its name, again after a refusal, and one without a name', async () => {
    const run = await sentRun(here, NAME);
    readerOf(run);
    run.refused();
    expect(await confirm(here, run)).toBe('confirmed');
    expect(await there.find(NAME)).toMatchObject({ state: 'live', id: run.id });
    expect(await confirm(here, run, { name: undefined, conversation: undefined })).toBe('confirmed');
  });
}

test('in memory, the oldest names go when there are too many', async () => {
  const store = new MemoryRunStore(TIMES, 3);
  for (const key of ['a', 'b', 'c']) await end(await sentRun(store, nameOf(key)));
  await store.claim(nameOf('d'), runOf(nameOf('d')));
  const states = await Promise.all(['a', 'c', 'd'].map((key) => store.find(nameOf(key))));
  expect(states.map(({ state }) => state)).toEqual(['free', 'kept', 'live']);
});

describeWithRedis('in Redis', () => {
  let stores: RedisStores;
  let fault: FaultyRedis;
  /** Two instances. What the first one asks of Redis can go wrong. */
  let here: RunStore;
  let there: RunStore;
  beforeAll(async () => {
    stores = await redisStores();
  });
  beforeEach(async () => {
    fault = new FaultyRedis();
    here = await stores.open({ fault });
    there = await stores.open();
  });
  afterEach(() => stores.reset());
  afterAll(() => stores.close());

  const lost = () => stores.lose(fault, NAME);
  const liveOf = ({ id, requestId }: { id: string; requestId: string }) => ({ state: 'live', id, requestId });
  const becomes = (state: string) => until(async () => (await there.find(NAME)).state === state);

  describe('a claim', () => {
    test('whose instance is lost before it has sent the message leaves the name free', async () => {
      const run = await claimedRun(here, NAME);
      expect(await there.find(NAME)).toEqual(liveOf(run));
      await lost();
      expect(await there.find(NAME)).toEqual({ state: 'free' });
      expect(await there.newest(NEWEST)).toEqual({ state: 'over' });
      expect(await there.claim(NAME, runOf(NAME))).toEqual({ state: 'claimed' });
    });

    test('is renewed, and is no claim any more once it was confirmed', async () => {
      const run = await claimedRun(here, NAME);
      const { lease } = await stores.stored(NAME);
      await until(async () => (await stores.stored(NAME)).lease > lease);
      await confirm(here, run);
      await run.carried?.askForReaders();
      expect(await stores.stored(NAME)).toMatchObject({ state: 's' });
    });

    test('that another instance got meanwhile is not taken back, and is read', async () => {
      const run = await claimedRun(here, NAME);
      await lost();
      const other = await claimedRun(there, NAME);
      fault.state = 'well';
      expect(await confirm(here, run)).toEqual({ other: { id: other.id, requestId: other.requestId } });
      await run.carried?.askForReaders();
      expect(await there.find(NAME)).toEqual(liveOf(other));
      await end(run, new Problem('busy', 'No.'));
      expect(await there.find(NAME)).toEqual(liveOf(other));
    });

    test('drops names of its conversation that are known no longer', async () => {
      const short = await stores.open({ times: { maxWaitMs: 1, maxExecutionMs: 1 } });
      const names = Array.from({ length: 8 }, (_, n) => nameOf(`old${n}`));
      for (const name of names) await short.claim(name, runOf(name));
      await until(async () => {
        const one = nameOf('new', { message: undefined });
        await there.claim(one, runOf(one));
        return Number(await stores.command('HLEN', 'bot-relay:{c}:names')) === 1;
      });
    });
  });

  describe('a confirmed run', () => {
    test('whose instance is lost keeps its name', async () => {
      const run = await sentRun(here, NAME);
      await lost();
      expect(await there.find(NAME)).toEqual(liveOf(run));
      expect(await there.claim(NAME, runOf(NAME))).toEqual(liveOf(run));
      expect(await confirm(there, runOf(NAME))).toEqual({ other: { id: run.id, requestId: run.requestId } });
    });

    test('is refused if its name is of another, and has a name that was lost', async () => {
      const run = await claimedRun(here, NAME);
      fault.state = 'away';
      await stores.command('FLUSHALL');
      expect(await there.claim(NAME, runOf(NAME))).toEqual({ state: 'claimed' });
      fault.state = 'well';
      expect(await confirm(here, run)).toMatchObject({ other: { id: expect.any(String) } });
      await stores.command('FLUSHALL');
      expect(await confirm(there, run)).toBe('confirmed');
      expect(await stores.stored(NAME)).toMatchObject({ state: 's' });
    });

    test.each([
      ['claimed', claimedRun, 'c'],
      ['confirmed', sentRun, 's'],
    ])('that Redis has lost is put back by the next renewal: %s', async (_what, begin, state) => {
      const run = await begin(here, NAME);
      await stores.command('FLUSHALL');
      await becomes('live');
      expect(await stores.stored(NAME)).toMatchObject({ state });
      expect(await there.find(NAME)).toEqual(liveOf(run));
      expect(await there.newest(NEWEST)).toMatchObject({ id: run.id });
    });

    test('keeps its answer though Redis was away at its end', async () => {
      const run = await begunRun(here, NAME);
      say(run, 'data: 1\n\n');
      fault.state = 'away';
      // It was tried.
      await end(run);
      expect(await there.find(NAME)).toMatchObject({ state: 'live' });
      fault.state = 'well';
      await becomes('kept');
    });

    test('gets no name back by what comes late', async () => {
      const name = nameOf('k', { outlivesRun: false });
      const run = await sentRun(there, name);
      await end(run);
      expect(await confirm(there, run)).toBe('stopped');
      // A renewal of an instance that has not noticed it.
      await there.carry(runOf(name, { id: run.id })).askForReaders();
      expect(await there.find(NAME)).toEqual({ state: 'free' });
    });
  });

  describe('a stop', () => {
    test('refuses what waits in its conversation, with and without a name, and nothing else', async () => {
      const run = await claimedRun(here, NAME);
      const sent = await sentRun(here, nameOf('sent'));
      const elsewhere = await claimedRun(here, nameOf('elsewhere', { conversation: 'd' }));
      // They have waited for longer than a round trip takes.
      const early = { waitsSince: performance.now() - 10_000 };
      expect(await there.stop('c')).toBe(1);
      expect(await confirm(here, run, early)).toBe('stopped');
      expect(await confirm(here, run, { ...early, name: undefined })).toBe('stopped');
      expect(await confirm(here, run, { ...early, name: undefined, conversation: undefined })).toBe(
        'confirmed',
      );
      expect(await confirm(here, elsewhere)).toBe('confirmed');
      expect(await there.find(nameOf('sent'))).toEqual(liveOf(sent));
      // A run that begins to wait after the stop is not stopped.
      await until(async () => (await confirm(here, run, { waitsSince: performance.now() })) === 'confirmed');
    });

    test('is told to all instances', async () => {
      const told: string[] = [];
      here.listen((conversation) => told.push(conversation));
      await until(async () => {
        await there.stop('c');
        return told.length > 0;
      });
      expect(told[0]).toBe('c');
    });
  });

  test('what is stored is readable by nobody, and goes when nobody needs it', async () => {
    const times = { keepMs: 50, rememberMs: 50, maxWaitMs: 50, maxExecutionMs: 50 };
    const store = await stores.open({ times });
    for (const n of [1, 2]) {
      const run = await begunRun(store, nameOf(`k${n}`));
      say(run, 'data: a secret of a user\n\n');
      await end(run);
    }
    const keys = async () => (await stores.command('KEYS', '*')) as string[];
    const ofRuns = (await keys()).filter((key) => !key.endsWith(':names'));
    expect(ofRuns).toHaveLength(4);
    for (const key of ofRuns) {
      const leftMs = Number(await stores.command('PTTL', key));
      expect([leftMs > 0, leftMs <= 10_000]).toEqual([true, true]);
      const text = String(await stores.command('DUMP', key));
      for (const secret of ['secret', 'request-of', 'event-stream']) expect(text).not.toContain(secret);
    }
    await until(async () => !(await keys()).some((key) => key.endsWith(':names')));
  });

  describe('that has little memory left', () => {
    /** Sets the bound so that this part of the memory is used. */
    async function use(part: number): Promise<void> {
      const info = String(await stores.command('INFO', 'memory'));
      const used = Number(/^used_memory:(\d+)/m.exec(info)?.[1]);
      await stores.command('CONFIG', 'SET', 'maxmemory', String(Math.ceil(used / part)));
    }
    const isStored = async (id: string) =>
      Number(await stores.command('EXISTS', `bot-relay:{c}:log:${id}`)) === 1;
    // It is so large that the memory of one connection more or less makes no difference.
    beforeEach(() => stores.command('SET', 'ballast', 'x'.repeat(8 << 20)));
    afterEach(() => stores.command('CONFIG', 'SET', 'maxmemory', '0'));

    test('no answer is stored, but its name is: nothing runs twice', async () => {
      await use(0.85);
      const run = await begunRun(here, NAME);
      say(run, 'data: 1\n\n');
      await run.carried?.askForReaders();
      expect(await isStored(run.id)).toBe(false);
      expect(await there.claim(NAME, runOf(NAME))).toEqual(liveOf(run));
      expect(await joinedRun(there, run).failed).toMatchObject({ code: 'run_not_kept' });
      await end(run);
      expect(await there.claim(NAME, runOf(NAME))).toEqual({ state: 'over' });
    });

    test('an answer that has begun is stored no more: who reads it elsewhere is told; later ones are', async () => {
      const run = await begunRun(here, NAME);
      const { sink } = joinedRun(there, run);
      say(run, 'data: 1\n\n');
      await sink.got('data: 1\n\n');
      await use(0.85);
      expect(await sink.ended()).toBe('answer_lost');
      say(run, 'data: 2\n\n');
      expect(await joinedRun(there, run).failed).toMatchObject({ code: 'run_not_kept' });
      expect([run.state, sink.text]).toEqual(['streaming', 'data: 1\n\n']);
      await end(run);
      expect(await there.find(NAME)).toEqual({ state: 'over' });
      await use(0.5);
      await until(async () => {
        const later = await begunRun(here, nameOf(`later ${performance.now()}`));
        say(later, 'data: 1\n\n');
        await end(later);
        return isStored(later.id);
      });
    });
  });
});
