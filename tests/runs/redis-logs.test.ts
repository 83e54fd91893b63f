import { afterAll, afterEach, beforeAll, beforeEach, expect, test } from '@jest/globals';
import { Problem } from '../../src/errors.ts';
import { CLIENT_LEFT } from '../../src/http/client-connection.ts';
import type { Run } from '../../src/runs/run.ts';
import { NAME_IS_FREE } from '../../src/runs/run-problems.ts';
import type { RunStore } from '../../src/runs/run-store.ts';
import { until } from '../harness/clock/until.ts';
import { describeWithRedis } from '../harness/redis/redis.ts';
import {
  begunRun,
  claimedRun,
  end,
  joinedRun,
  nameOf,
  readerOf,
  runOf,
  say,
  sentRun,
} from '../harness/runs/carried-run.ts';
import { FaultyRedis, type RedisStores, redisStores } from '../harness/runs/run-stores.ts';

const NAME = nameOf('k');
const MAX_BYTES = 4_096;
const EVENT = `data: ${'x'.repeat(92)}\n\n`;
const [ONE, TWO] = ['data: 1\n\n', 'data: 2\n\n'];

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
  here = await stores.open({ maxBytes: MAX_BYTES, fault });
  there = await stores.open();
});
afterEach(() => stores.reset());
afterAll(() => stores.close());

const keyOf = (what: string, run: Run) => `bot-relay:{c}:${what}:${run.id}`;
/** The offsets of the ends of what is stored. */
async function entries(run: Run): Promise<number[]> {
  const all = (await stores.command('XRANGE', keyOf('log', run), '-', '+')) as [string, unknown][];
  return all.map(([id]) => Number.parseInt(id, 10));
}
const lost = () => stores.lose(fault, NAME);
/** Waits for so many more answers of Redis. */
async function answers(of: FaultyRedis, count: number): Promise<void> {
  const before = of.answers;
  await until(() => of.answers >= before + count);
}

/** A run whose stream has begun with one event, and a reader at another instance who has that. */
async function readRun(elsewhere = there, changes?: Parameters<typeof begunRun>[2]) {
  const run = await begunRun(here, NAME, changes);
  const reader = joinedRun(elsewhere, run);
  say(run, ONE);
  await reader.sink.got(ONE);
  return { run, ...reader };
}

describeWithRedis('a run that is read at another instance', () => {
  test('is there from its beginning, with its headers, as it comes', async () => {
    const { run, own, sink } = await readRun();
    expect(own.head).toEqual(new Map([['content-type', 'text/event-stream']]));
    expect(own.headers).toEqual(new Map([['x-request', 'one']]));
    say(run, TWO);
    await sink.got(ONE + TWO);
    expect(sink.end).toBeUndefined();
    run.upstreamStatus = 200;
    await end(run);
    expect(await sink.ended()).toBe('complete');
    expect(own).toMatchObject({ state: 'ended', hasLeft: true, mayHaveRun: true, upstreamStatus: 200 });
  });

  test('ends with its problem there, cut where it is cut', async () => {
    const { run, sink } = await readRun();
    const problem = new Problem('upstream_stream_broken', 'It broke.', { maybeStarted: true });
    say(run, 'da');
    run.stream.endEarly(problem, true);
    run.end(problem);
    expect(await sink.ended()).toBe(problem.code);
    expect(sink).toMatchObject({ text: `${ONE}da`, isCut: true });
  });

  test('fails there with what it has failed with before its stream', async () => {
    const run = await sentRun(here, NAME);
    run.refused();
    const { own, failed } = joinedRun(there, run);
    run.end(new Problem('rate_limited', 'No.', { retryAfter: 7 }));
    expect(await failed).toMatchObject({ code: 'rate_limited', options: { retryAfter: 7 } });
    expect(own).toMatchObject({ hasLeft: true, mayHaveRun: false });
  });

  test.each([
    ['its own client has left', async (run: Run) => run.end(CLIENT_LEFT)],
    ['its instance is lost', lost],
  ])('leaves its name to those who wait there, if before it was sent %s', async (_why, leave) => {
    const run = await claimedRun(here, NAME);
    const { failed } = joinedRun(there, run);
    await leave(run);
    expect(await failed).toBe(NAME_IS_FREE);
    expect(await there.claim(NAME, runOf(NAME))).toEqual({ state: 'claimed' });
  });

  test('is in its grace while it has no reader here nor there', async () => {
    const run = await begunRun(here, NAME);
    readerOf(run).leave();
    await until(() => run.isInGrace);
    const { leave } = joinedRun(await stores.open({ leases: { followedMs: 500 } }), run);
    await until(() => !run.isInGrace);
    readerOf(run).leave();
    await run.carried?.askForReaders();
    expect(run).toMatchObject({ state: 'streaming', isInGrace: false });
    leave();
    await until(() => run.isInGrace);
  });

  test('is not given up if that reader has come unnoticed', async () => {
    // Without news, it would learn of it with its next renewal.
    const slow = await stores.open({ leases: { renewMs: 60_000 } });
    const looking = new FaultyRedis();
    const run = await begunRun(slow, NAME, { graceMs: 0 });
    await run.carried?.askForReaders();
    const own = readerOf(run);
    const { sink } = joinedRun(await stores.open({ fault: looking }), run);
    await answers(looking, 1);
    own.leave();
    await until(() => sink.source !== undefined);
    say(run, ONE);
    await sink.got(ONE);
    run.abandon();
  });

  test('is given up there if Redis is away from its own instance for longer than it counts as read', async () => {
    const elsewhere = await stores.open({ leases: { followedMs: 500 } });
    const { run, leave } = await readRun(elsewhere, { graceMs: 20 });
    // It may not have heard yet that it is read.
    await run.carried?.askForReaders();
    fault.state = 'away';
    leave();
    await until(() => run.state === 'ended');
    expect(run.failure).toBe(CLIENT_LEFT);
  });

  test('has all that is stored once somebody has looked for a place in it', async () => {
    const run = await begunRun(there, NAME);
    const event = `data: ${'x'.repeat(900)}\n\n`;
    for (let n = 0; n < 100; n++) {
      say(run, event);
      await run.carried?.askForReaders();
    }
    const own = runOf(NAME, { maxBytes: 65_536 });
    own.follow(run);
    const elsewhere = await stores.open();
    await elsewhere.follow(own);
    expect(own.stream.log).toMatchObject({ start: 0, end: 100 * event.length });
    say(run, ONE);
    await run.carried?.askForReaders();
    await elsewhere.follow(own);
    expect(own.stream.log.end).toBe(100 * event.length + ONE.length);
    own.abandon();
  });

  test('waits for a reader there that takes nothing, and goes on with it', async () => {
    const { run, own, sink } = await readRun();
    sink.hold();
    say(run, TWO);
    for (let n = 0; n < 2; n++) await run.carried?.askForReaders();
    expect(own.stream.log.end).toBeLessThanOrEqual(ONE.length + TWO.length);
    expect(sink.end).toBeUndefined();
    sink.release();
    await sink.got(ONE + TWO);
    await end(run);
    expect(await sink.ended()).toBe('complete');
  });
});

describeWithRedis('a batch', () => {
  test('whose answer was lost is stored once, and nothing is missing', async () => {
    const run = await begunRun(here, NAME);
    fault.state = 'unanswered';
    const before = fault.failures;
    say(run, ONE);
    await until(() => fault.failures > before + 2);
    expect(await entries(run)).toEqual([9]);
    say(run, TWO);
    fault.state = 'well';
    await run.carried?.askForReaders();
    expect(await entries(run)).toEqual([9, 18]);
    await end(run);
    const { sink } = joinedRun(there, run);
    expect(await sink.ended()).toBe('complete');
    expect(sink.text).toBe(ONE + TWO);
  });

  test.each(['\n\n', '\r\n\r\n'])('ends with an event, so that a reader can be told: %j', async (ending) => {
    const run = await begunRun(here, NAME);
    const event = `data: ${'x'.repeat(92)}${ending}`;
    for (let events = 0; events < 30; events++) say(run, event);
    await run.carried?.askForReaders();
    const stored = await entries(run);
    expect(stored.length).toBeGreaterThan(1);
    expect(stored.filter((at) => at % event.length !== 0)).toEqual([]);
  });

  test('behind a gap closes the log', async () => {
    const { run, sink } = await readRun();
    await stores.command('DEL', keyOf('run', run));
    say(run, TWO);
    expect(await sink.ended()).toBe('answer_lost');
    expect(sink).toMatchObject({ text: ONE, isCut: false });
    expect(await entries(run)).toEqual([]);
    // Who comes later does not get the rest as if it were all.
    expect(await joinedRun(there, run).failed).toMatchObject({ code: 'run_not_kept' });
    await end(run);
    expect(await there.find(NAME)).toEqual({ state: 'over' });
  });

  test('waits while nobody reads it elsewhere, and comes at once when somebody begins to', async () => {
    here = await stores.open({ leases: { renewMs: 60_000 } });
    here.listen(() => {});
    const subscribers = () => stores.command('PUBSUB', 'NUMSUB', 'bot-relay:{runs}:news');
    await until(async () => Number(((await subscribers()) as string[])[1]) > 0);
    const { run, sink } = await readRun();
    say(run, TWO);
    await sink.got(ONE + TWO);
    run.abandon();
  });
});

describeWithRedis('a log', () => {
  test('has no more than its bytes, and a reader that fell out of it ends', async () => {
    const slow = new FaultyRedis();
    const { run, sink } = await readRun(await stores.open({ fault: slow }));
    await slow.freeze();
    for (let n = 0; n < 200; n++) say(run, EVENT);
    await run.carried?.askForReaders();
    slow.state = 'well';
    expect(await sink.ended()).toBe('reader_too_slow');
    await end(run);
    const all = await entries(run);
    const last = ONE.length + 200 * EVENT.length;
    expect(all.at(-1)).toBe(last);
    expect(all[0]).toBeGreaterThan(last - MAX_BYTES);
    expect(await joinedRun(there, run).failed).toMatchObject({ code: 'run_over' });
  });

  test('is closed if what was not stored yet is forgotten here', async () => {
    const run = await begunRun(here, NAME, { maxBytes: MAX_BYTES });
    fault.state = 'away';
    readerOf(run);
    for (let n = 0; n < 400; n++) say(run, EVENT);
    expect(run.stream.log.start).toBeGreaterThan(0);
    fault.state = 'well';
    await until(async () => (await stores.command('HGET', keyOf('run', run), 'closed')) !== null);
    await end(run);
    expect(await there.claim(NAME, runOf(NAME))).toEqual({ state: 'over' });
  });

  test('that Redis has lost is not stored on: its readers end, and its own client has all', async () => {
    const { run, sink } = await readRun();
    await stores.command('FLUSHALL');
    say(run, TWO);
    expect(await sink.ended()).toBe('answer_lost');
    expect(await there.find(NAME)).toMatchObject({ state: 'live', id: run.id });
    expect(run.state).toBe('streaming');
    await end(run);
    expect(await there.find(NAME)).toEqual({ state: 'over' });
  });

  test('that Redis has lost before the first byte is whole again', async () => {
    const run = await begunRun(here, NAME);
    const { sink, own } = joinedRun(there, run);
    await own.streamBegun.promise;
    await stores.command('FLUSHALL');
    await until(async () => (await there.find(NAME)).state === 'live');
    say(run, ONE);
    await sink.got(ONE);
    await end(run);
    for (const one of [sink, joinedRun(there, run).sink]) expect(await one.ended()).toBe('complete');
  });

  test('of a name that is another run now is stored no more', async () => {
    const { run, sink } = await readRun();
    await fault.freeze();
    await stores.command('FLUSHALL');
    const other = await begunRun(there, NAME);
    expect(await sink.ended()).toBe('answer_lost');
    fault.state = 'well';
    say(run, TWO);
    await end(run);
    expect(await there.find(NAME)).toMatchObject({ state: 'live', id: other.id });
    expect(await entries(run)).toEqual([]);
  });
});

describeWithRedis('the end of a run', () => {
  test('is there for those who read it, though its name is free', async () => {
    const name = nameOf('k', { outlivesRun: false });
    const run = await begunRun(here, name);
    const { sink } = joinedRun(there, run);
    say(run, ONE);
    await sink.got(ONE);
    sink.hold();
    say(run, TWO);
    await end(run);
    expect(await there.find(name)).toEqual({ state: 'free' });
    sink.release();
    expect(await sink.ended()).toBe('complete');
    expect(sink.text).toBe(ONE + TWO);
  });

  test('that nobody has stored is none: who reads it gets what is there, and is told that it is lost', async () => {
    const { run, sink, own } = await readRun();
    say(run, 'data');
    await sink.got(`${ONE}data`);
    await lost();
    expect(await sink.ended()).toBe('answer_lost');
    expect(sink.isCut).toBe(true);
    expect(own.mayHaveRun).toBe(true);
    // Who comes later gets the same.
    const late = joinedRun(there, run).sink;
    expect(await late.ended()).toBe('answer_lost');
    expect(late.text).toBe(`${ONE}data`);
  });

  test('is not taken for lost where Redis was away a moment ago: leases are renewed first', async () => {
    const away = new FaultyRedis();
    const { run, sink } = await readRun(await stores.open({ leases: { calmMs: 60_000 }, fault: away }));
    away.state = 'away';
    await until(() => away.failures > 0);
    away.state = 'well';
    await lost();
    await answers(away, 4);
    fault.state = 'well';
    await end(run);
    expect(await sink.ended()).toBe('complete');
  });

  test('is not taken for lost where Redis has lost the name: that is put back first', async () => {
    const looking = new FaultyRedis();
    // Who waits there gives it more time than this test takes.
    const elsewhere = await stores.open({ leases: { renewMs: 60_000 }, fault: looking });
    const run = await sentRun(here, NAME);
    const { sink } = joinedRun(elsewhere, run);
    await answers(looking, 1);
    await fault.freeze();
    await stores.command('FLUSHALL');
    await answers(looking, 4);
    fault.state = 'well';
    run.beginStream(new Map());
    say(run, ONE);
    await end(run);
    expect(await sink.ended()).toBe('complete');
  });

  test('is none if what was stored before it is gone', async () => {
    const run = await begunRun(here, NAME);
    say(run, ONE);
    await end(run);
    await stores.command('DEL', keyOf('log', run));
    const { own } = joinedRun(there, run);
    await until(() => own.state === 'ended');
    expect(own.failure).toMatchObject({ code: 'run_not_kept' });
  });

  test('is answer_lost for those who do not reach Redis for long', async () => {
    const away = new FaultyRedis();
    const { sink } = await readRun(await stores.open({ leases: { failingMs: 50 }, fault: away }));
    away.state = 'away';
    expect(await sink.ended()).toBe('answer_lost');
    expect(sink.isCut).toBe(false);
  });
});
