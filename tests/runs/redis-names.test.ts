import { afterEach, beforeEach, expect, test } from '@jest/globals';
import { Problem } from '../../src/errors.ts';
import type { RunStore } from '../../src/runs/run-store.ts';
import { sleep } from '../harness/clock/sleep.ts';
import { until } from '../harness/clock/until.ts';
import { describeWithRedis } from '../harness/redis/redis.ts';
import { begunRun, claimedRun, complete, confirm, say, sentRun } from '../harness/runs/carried-run.ts';
import { type FaultyRedis, faultyRedis } from '../harness/runs/faulty-redis.ts';
import { nameOf, type RedisStores, redisStores, runOf } from '../harness/runs/run-stores.ts';

const NAME = nameOf('k');

let stores: RedisStores;
let fault: FaultyRedis;
/** Two instances. What the first one asks of Redis can go wrong. */
let here: RunStore;
let there: RunStore;
beforeEach(async () => {
  stores = await redisStores();
  fault = faultyRedis();
  here = await stores.open({ through: fault.through });
  there = await stores.open();
});
afterEach(() => stores.close());

const isFree = async () => (await there.find(NAME)).state === 'free';
const keys = async () => (await stores.command('KEYS', '*')) as string[];
/** The instance `here` is lost for so long that its lease is over. */
async function lost(): Promise<void> {
  await fault.freeze();
  await stores.lapse(NAME);
}

describeWithRedis('a claim', () => {
  test('whose instance is lost before it has sent the message leaves the name free', async () => {
    const run = await claimedRun(here, NAME);
    expect(await there.find(NAME)).toMatchObject({ state: 'live', id: run.id });
    await lost();
    expect(await isFree()).toBe(true);
    expect(await there.newest({ conversation: 'c', message: 'message-of-k' })).toEqual({ state: 'over' });
    expect(await there.claim(NAME, runOf(NAME))).toEqual({ state: 'claimed' });
  });

  test('is renewed', async () => {
    await claimedRun(here, NAME);
    const { lease } = await stores.stored(NAME);
    await until(async () => (await stores.stored(NAME)).lease > lease);
  });

  test('that another instance got meanwhile is not taken back, and is read', async () => {
    const run = await claimedRun(here, NAME);
    await lost();
    const other = await claimedRun(there, NAME);
    fault.state = 'well';
    expect(await confirm(here, run)).toEqual({ other: { id: other.id, requestId: other.requestId } });
    await run.carried?.askForReaders();
    expect(await there.find(NAME)).toMatchObject({ id: other.id });
    run.end(new Problem('busy', 'No.'));
    await run.stored;
    expect(await there.find(NAME)).toMatchObject({ state: 'live', id: other.id });
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

describeWithRedis('a confirmed run', () => {
  test('whose instance is lost keeps its name', async () => {
    const run = await sentRun(here, NAME);
    await lost();
    const live = { state: 'live', id: run.id, requestId: run.requestId };
    expect(await there.find(NAME)).toEqual(live);
    expect(await there.claim(NAME, runOf(NAME))).toEqual(live);
    const late = runOf(NAME);
    expect(await confirm(there, late)).toEqual({ other: { id: run.id, requestId: run.requestId } });
  });

  test('does not become a claim again by a renewal', async () => {
    const run = await claimedRun(here, NAME);
    await confirm(here, run);
    await run.carried?.askForReaders();
    expect(await stores.stored(NAME)).toMatchObject({ state: 's' });
  });

  test('is refused if its name is of another, and has a name that was lost', async () => {
    const run = await claimedRun(here, NAME);
    fault.state = 'away';
    await stores.command('FLUSHALL');
    const other = await there.claim(NAME, runOf(NAME));
    expect(other).toEqual({ state: 'claimed' });
    fault.state = 'well';
    expect(await confirm(here, run)).toMatchObject({ other: { id: expect.any(String) } });
    await stores.command('FLUSHALL');
    expect(await confirm(there, run)).toBe('confirmed');
    expect(await stores.stored(NAME)).toMatchObject({ state: 's' });
  });

  test.each([
    ['claimed', 'c'],
    ['confirmed', 's'],
  ])('that Redis has lost is put back by the next renewal: %s', async (what, state) => {
    const run = await (what === 'claimed' ? claimedRun : sentRun)(here, NAME);
    await stores.command('FLUSHALL');
    await until(async () => !(await isFree()));
    expect(await stores.stored(NAME)).toMatchObject({ state });
    expect(await there.find(NAME)).toEqual({ state: 'live', id: run.id, requestId: run.requestId });
    expect(await there.newest({ conversation: 'c', message: 'message-of-k' })).toMatchObject({ id: run.id });
  });

  test('keeps its answer though Redis was away at its end', async () => {
    const run = await begunRun(here, NAME);
    say(run, 'data: 1\n\n');
    fault.state = 'away';
    // It was tried.
    await complete(run);
    expect(await there.find(NAME)).toMatchObject({ state: 'live' });
    fault.state = 'well';
    await until(async () => (await there.find(NAME)).state === 'kept');
  });

  test('gets no name back by what comes late', async () => {
    const name = nameOf('k', { outlivesRun: false });
    const run = await sentRun(there, name);
    await confirm(there, run);
    await complete(run);
    expect(await isFree()).toBe(true);
    expect(await confirm(there, run)).toBe('stopped');
    expect(await isFree()).toBe(true);
    // A renewal of an instance that has not noticed it.
    const late = there.carry(runOf(name, { id: run.id }));
    await late.askForReaders();
    expect(await isFree()).toBe(true);
  });
});

describeWithRedis('a stop', () => {
  test('refuses what waits in its conversation, at all instances, with and without a name', async () => {
    const run = await claimedRun(here, NAME);
    const sent = await sentRun(here, nameOf('sent'));
    const elsewhere = await claimedRun(here, nameOf('elsewhere', { conversation: 'd' }));
    // They have waited for longer than a round trip takes.
    const waitsSince = performance.now() - 10_000;
    const unnamed = { id: 'r', name: undefined, conversation: 'c', waitsSince };
    expect(await there.stop('c')).toBe(1);
    expect(await here.confirm({ ...unnamed, id: run.id, name: NAME })).toBe('stopped');
    expect(await here.confirm(unnamed)).toBe('stopped');
    expect(await here.confirm({ ...unnamed, conversation: undefined })).toBe('confirmed');
    expect(await confirm(here, elsewhere)).toBe('confirmed');
    expect(await there.find(nameOf('sent'))).toMatchObject({ state: 'live', id: sent.id });
  });

  test('does not refuse what began to wait after it', async () => {
    await there.stop('c');
    await sleep(5);
    expect(await confirm(here, await claimedRun(here, NAME))).toBe('confirmed');
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

describeWithRedis('what is stored of runs', () => {
  test('is readable by nobody, and goes when nobody needs it', async () => {
    const store = await stores.open({
      times: { keepMs: 50, rememberMs: 50, maxWaitMs: 50, maxExecutionMs: 50 },
    });
    for (const n of [1, 2]) {
      const run = await begunRun(store, nameOf(`k${n}`));
      say(run, 'data: a secret of a user\n\n');
      await complete(run);
    }
    const ofRuns = (await keys()).filter((key) => !key.endsWith(':names'));
    expect(ofRuns).toHaveLength(4);
    for (const key of ofRuns) {
      expect(Number(await stores.command('PTTL', key))).toBeGreaterThan(0);
      expect(Number(await stores.command('PTTL', key))).toBeLessThanOrEqual(10_000);
      const text = String(await stores.command('DUMP', key));
      for (const secret of ['secret', 'request-of', 'event-stream']) expect(text).not.toContain(secret);
    }
    await until(async () => !(await keys()).some((key) => key.endsWith(':names')));
  });
});
