import { afterEach, beforeEach, expect, test } from '@jest/globals';
import { CLIENT_LEFT } from '../../src/http/client-connection.ts';
import type { Run } from '../../src/runs/run.ts';
import { NAME_IS_FREE } from '../../src/runs/run-problems.ts';
import type { RunStore } from '../../src/runs/run-store.ts';
import { until } from '../harness/clock/until.ts';
import { describeWithRedis } from '../harness/redis/redis.ts';
import {
  begunRun,
  claimedRun,
  complete,
  endOf,
  got,
  joinedRun,
  say,
  sentRun,
} from '../harness/runs/carried-run.ts';
import { type FaultyRedis, faultyRedis } from '../harness/runs/faulty-redis.ts';
import { nameOf, type RedisStores, redisStores, runOf } from '../harness/runs/run-stores.ts';

const NAME = nameOf('k');
const MAX_BYTES = 4_096;
const EVENT = `data: ${'x'.repeat(92)}\n\n`;

let stores: RedisStores;
let fault: FaultyRedis;
/** Two instances. What the first one asks of Redis can go wrong. */
let here: RunStore;
let there: RunStore;
beforeEach(async () => {
  stores = await redisStores();
  fault = faultyRedis();
  here = await stores.open({ maxBytes: MAX_BYTES, through: fault.through });
  there = await stores.open();
});
afterEach(() => stores.close());

const keyOf = (what: string, run: Run) => `bot-relay:{c}:${what}:${run.id}`;
/** The offsets of the ends of what is stored. */
async function entries(run: Run): Promise<number[]> {
  const all = (await stores.command('XRANGE', keyOf('log', run), '-', '+')) as [string, unknown][];
  return all.map(([id]) => Number.parseInt(id, 10));
}
/** The instance `here` is lost for so long that its lease is over. */
async function lost(): Promise<void> {
  await fault.freeze();
  await stores.lapse(NAME);
}
const isClosed = async (run: Run) => (await stores.command('HGET', keyOf('run', run), 'closed')) !== null;

describeWithRedis('a batch', () => {
  test('whose answer was lost is stored once, and nothing is missing', async () => {
    const run = await begunRun(here, NAME);
    fault.state = 'unanswered';
    const before = fault.failures;
    say(run, 'data: 1\n\n');
    await until(() => fault.failures > before + 2);
    expect(await entries(run)).toEqual([9]);
    say(run, 'data: 2\n\n');
    fault.state = 'well';
    await run.carried?.askForReaders();
    expect(await entries(run)).toEqual([9, 18]);
    await complete(run);
    const { sink } = joinedRun(there, run);
    expect(await endOf(sink)).toBe('complete');
    expect(sink.text).toBe('data: 1\n\ndata: 2\n\n');
  });

  test('ends with an event, so that a reader of a lost instance can be told', async () => {
    for (const [n, end] of ['\n\n', '\r\n\r\n'].entries()) {
      const run = await begunRun(here, nameOf(`key ${n}`));
      const event = `data: ${'x'.repeat(92)}${end}`;
      for (let events = 0; events < 30; events++) say(run, event);
      await run.carried?.askForReaders();
      const stored = await entries(run);
      expect(stored.length).toBeGreaterThan(1);
      expect(stored.filter((at) => at % event.length !== 0)).toEqual([]);
    }
  });

  test('behind a gap closes the log', async () => {
    const run = await begunRun(here, NAME);
    say(run, 'data: 1\n\n');
    await run.carried?.askForReaders();
    const reader = joinedRun(there, run);
    await got(reader.sink, 'data: 1\n\n');
    await stores.command('DEL', keyOf('run', run));
    say(run, 'data: 2\n\n');
    expect(await endOf(reader.sink)).toBe('answer_lost');
    expect(reader.sink).toMatchObject({ text: 'data: 1\n\n', isCut: false });
    expect(await entries(run)).toEqual([]);
    // Who comes later does not get the rest as if it were all.
    expect(await joinedRun(there, run).failed).toMatchObject({ code: 'run_not_kept' });
    await complete(run);
    expect(await there.find(NAME)).toEqual({ state: 'over' });
  });

  test('waits while nobody reads it elsewhere, and comes at once when somebody begins to', async () => {
    const slow = await stores.open({ leases: { renewMs: 60_000 } });
    slow.listen(() => {});
    await until(
      async () =>
        Number(((await stores.command('PUBSUB', 'NUMSUB', 'bot-relay:{runs}:news')) as string[])[1]) > 0,
    );
    const run = await begunRun(slow, NAME);
    say(run, 'data: 1\n\n');
    const { sink } = joinedRun(there, run);
    await got(sink, 'data: 1\n\n');
    say(run, 'data: 2\n\n');
    await got(sink, 'data: 1\n\ndata: 2\n\n');
    run.abandon();
  });
});

describeWithRedis('a log', () => {
  test('has no more than its bytes, and a reader that fell out of it ends', async () => {
    const slow = faultyRedis();
    const run = await begunRun(here, NAME);
    const reader = joinedRun(await stores.open({ through: slow.through }), run);
    say(run, EVENT);
    await got(reader.sink, EVENT);
    await slow.freeze();
    for (let n = 1; n < 200; n++) say(run, EVENT);
    await run.carried?.askForReaders();
    slow.state = 'well';
    expect(await endOf(reader.sink)).toBe('reader_too_slow');
    await complete(run);
    const all = await entries(run);
    expect(all.at(-1)).toBe(200 * EVENT.length);
    expect(all[0]).toBeGreaterThan(200 * EVENT.length - MAX_BYTES);
    expect(await joinedRun(there, run).failed).toMatchObject({ code: 'run_over' });
  });

  test('is closed if what was not stored yet is forgotten here', async () => {
    const run = await begunRun(here, NAME, { maxBytes: MAX_BYTES });
    fault.state = 'away';
    for (let n = 0; n < 200; n++) say(run, EVENT);
    run.stream.read(
      { open() {}, write() {}, isFull: () => false, hasBegun: () => true, complete() {}, endEarly() {} },
      0,
      () => {},
    );
    for (let n = 0; n < 200; n++) say(run, EVENT);
    expect(run.stream.log.start).toBeGreaterThan(0);
    fault.state = 'well';
    await until(() => isClosed(run));
    await complete(run);
    expect(await there.claim(NAME, runOf(NAME))).toEqual({ state: 'over' });
  });

  test('that Redis has lost is not stored on: its readers end, and its own client has all', async () => {
    const run = await begunRun(here, NAME);
    const { sink } = joinedRun(there, run);
    say(run, 'data: 1\n\n');
    await got(sink, 'data: 1\n\n');
    await stores.command('FLUSHALL');
    say(run, 'data: 2\n\n');
    expect(await endOf(sink)).toBe('answer_lost');
    expect(await there.find(NAME)).toMatchObject({ state: 'live', id: run.id });
    expect(run.state).toBe('streaming');
    await complete(run);
    expect(await there.find(NAME)).toEqual({ state: 'over' });
  });

  test('that Redis has lost before the first byte is whole again', async () => {
    const run = await begunRun(here, NAME);
    const { sink, own } = joinedRun(there, run);
    await own.streamBegun.promise;
    await stores.command('FLUSHALL');
    await until(async () => (await there.find(NAME)).state === 'live');
    say(run, 'data: 1\n\n');
    await got(sink, 'data: 1\n\n');
    await complete(run);
    expect(await endOf(sink)).toBe('complete');
    const late = joinedRun(there, run);
    expect(await endOf(late.sink)).toBe('complete');
  });

  test('of a name that is another run now is stored no more', async () => {
    const run = await begunRun(here, NAME);
    const { sink } = joinedRun(there, run);
    say(run, 'data: 1\n\n');
    await got(sink, 'data: 1\n\n');
    await fault.freeze();
    await stores.command('FLUSHALL');
    const other = await begunRun(there, NAME);
    expect(await endOf(sink)).toBe('answer_lost');
    fault.state = 'well';
    say(run, 'data: 2\n\n');
    await complete(run);
    expect(await there.find(NAME)).toMatchObject({ state: 'live', id: other.id });
    expect(await entries(run)).toEqual([]);
  });
});

describeWithRedis('the end of a run', () => {
  test('is there for those who read it, though its name is free', async () => {
    const name = nameOf('k', { outlivesRun: false });
    const run = await begunRun(here, name);
    const reader = joinedRun(there, run);
    say(run, 'data: 1\n\n');
    await got(reader.sink, 'data: 1\n\n');
    reader.sink.hold();
    say(run, 'data: 2\n\n');
    await complete(run);
    expect(await there.find(name)).toEqual({ state: 'free' });
    reader.sink.release();
    expect(await endOf(reader.sink)).toBe('complete');
    expect(reader.sink.text).toBe('data: 1\n\ndata: 2\n\n');
  });

  test('that nobody has stored is none: who reads it gets what is there, and is told that it is lost', async () => {
    const run = await begunRun(here, NAME);
    const { sink, own } = joinedRun(there, run);
    say(run, 'data: 1\n\ndata');
    await got(sink, 'data: 1\n\ndata');
    await lost();
    expect(await endOf(sink)).toBe('answer_lost');
    expect(sink.isCut).toBe(true);
    expect(own.mayHaveRun).toBe(true);
    // Who comes later gets the same.
    const late = joinedRun(there, run);
    expect(await endOf(late.sink)).toBe('answer_lost');
    expect(late.sink.text).toBe('data: 1\n\ndata');
  });

  test('of one that has not been sent lets those send it who wait for it', async () => {
    const { failed } = joinedRun(there, await claimedRun(here, NAME));
    await lost();
    expect(await failed).toBe(NAME_IS_FREE);
  });

  test('is not taken for lost where Redis was away a moment ago: leases are renewed first', async () => {
    const away = faultyRedis();
    const elsewhere = await stores.open({ leases: { calmMs: 60_000 }, through: away.through });
    const run = await begunRun(here, NAME);
    const { sink } = joinedRun(elsewhere, run);
    say(run, 'data: 1\n\n');
    await got(sink, 'data: 1\n\n');
    away.state = 'away';
    await until(() => away.failures > 0);
    away.state = 'well';
    await lost();
    const { answers } = away;
    await until(() => away.answers > answers + 3);
    fault.state = 'well';
    await complete(run);
    expect(await endOf(sink)).toBe('complete');
  });

  test('is not taken for lost where Redis has lost the name: that is put back first', async () => {
    const looking = faultyRedis();
    // Who waits there gives it more time than this test takes.
    const elsewhere = await stores.open({ leases: { renewMs: 60_000 }, through: looking.through });
    const run = await sentRun(here, NAME);
    const { sink } = joinedRun(elsewhere, run);
    await until(() => looking.answers > 0);
    await fault.freeze();
    await stores.command('FLUSHALL');
    const { answers } = looking;
    await until(() => looking.answers > answers + 3);
    fault.state = 'well';
    run.beginStream(new Map());
    say(run, 'data: 1\n\n');
    await complete(run);
    expect(await endOf(sink)).toBe('complete');
  });

  test('is none if what was stored before it is gone', async () => {
    const run = await begunRun(here, NAME);
    say(run, 'data: 1\n\n');
    await complete(run);
    await stores.command('DEL', keyOf('log', run));
    const { own } = joinedRun(there, run);
    await until(() => own.state === 'ended');
    expect(own.failure).toMatchObject({ code: 'run_not_kept' });
  });

  test('is answer_lost for those who do not reach Redis for long', async () => {
    const away = faultyRedis();
    const elsewhere = await stores.open({ leases: { failingMs: 50 }, through: away.through });
    const run = await begunRun(here, NAME);
    const { sink } = joinedRun(elsewhere, run);
    say(run, 'data: 1\n\n');
    await got(sink, 'data: 1\n\n');
    away.state = 'away';
    expect(await endOf(sink)).toBe('answer_lost');
    expect(sink.isCut).toBe(false);
  });

  test('comes for a run that nobody reads elsewhere any more, since Redis is away', async () => {
    const run = await begunRun(here, NAME, { graceMs: 20 });
    const { sink, leave } = joinedRun(there, run);
    say(run, 'data: 1\n\n');
    await got(sink, 'data: 1\n\n');
    // It may not have heard yet that it is read.
    await run.carried?.askForReaders();
    fault.state = 'away';
    leave();
    await until(() => run.state === 'ended');
    expect(run.failure).toBe(CLIENT_LEFT);
  });
});
