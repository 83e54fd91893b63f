import { afterEach, beforeEach, expect, test } from '@jest/globals';
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
  complete,
  endOf,
  got,
  joinedRun,
  say,
  sentRun,
} from '../harness/runs/carried-run.ts';
import { readerOf } from '../harness/runs/recording-sink.ts';
import { nameOf, type RedisStores, redisStores, runOf } from '../harness/runs/run-stores.ts';

const NAME = nameOf('k');
const PROBLEM = new Problem('upstream_stream_broken', 'It broke.', { maybeStarted: true });

let stores: RedisStores;
let here: RunStore;
let there: RunStore;
beforeEach(async () => {
  stores = await redisStores();
  [here, there] = [await stores.open(), await stores.open()];
});
afterEach(() => stores.close());

const sent = () => sentRun(here, NAME);
const begun = () => begunRun(here, NAME);
const joined = (run: Run) => joinedRun(there, run);

describeWithRedis('a run that is read at another instance', () => {
  test('is there from its beginning, with its headers, as it comes', async () => {
    const run = await begun();
    say(run, 'data: 1\n\n');
    const { own, sink } = joined(run);
    await got(sink, 'data: 1\n\n');
    expect(own.head).toEqual(new Map([['content-type', 'text/event-stream']]));
    expect(own.headers).toEqual(new Map([['x-request', 'one']]));
    say(run, 'data: 2\n\n');
    await got(sink, 'data: 1\n\ndata: 2\n\n');
    expect(sink.end).toBeUndefined();
    run.stream.complete();
    run.upstreamStatus = 200;
    run.end();
    await endOf(sink);
    expect(sink).toMatchObject({ text: 'data: 1\n\ndata: 2\n\n', end: 'complete' });
    expect(own).toMatchObject({ state: 'ended', hasLeft: true, mayHaveRun: true, upstreamStatus: 200 });
  });

  test('ends with its problem there, cut where it is cut', async () => {
    const run = await begun();
    const { sink } = joined(run);
    say(run, 'data: 1\n\nda');
    run.stream.endEarly(PROBLEM, true);
    run.end(PROBLEM);
    await endOf(sink);
    expect(sink).toMatchObject({ text: 'data: 1\n\nda', end: PROBLEM.code, isCut: true });
  });

  test('fails there with what it has failed with before its stream', async () => {
    const run = await sent();
    run.refused();
    const { own, failed } = joined(run);
    run.end(new Problem('rate_limited', 'No.', { retryAfter: 7 }));
    expect(await failed).toMatchObject({ code: 'rate_limited', options: { retryAfter: 7 } });
    expect(own).toMatchObject({ hasLeft: true, mayHaveRun: false });
  });

  test('leaves its name to those who wait there, if its own client has left before it was sent', async () => {
    const run = await claimedRun(here, NAME);
    const { failed } = joined(run);
    run.end(CLIENT_LEFT);
    expect(await failed).toBe(NAME_IS_FREE);
    expect(await there.claim(NAME, runOf(NAME))).toEqual({ state: 'claimed' });
  });

  test('is not given up while it has a reader there, and goes on for its grace after that', async () => {
    const run = await begun();
    const own = readerOf(run);
    const { sink, leave } = joined(run);
    say(run, 'data: 1\n\n');
    await got(sink, 'data: 1\n\n');
    own.leave();
    await run.carried?.askForReaders();
    expect(run).toMatchObject({ state: 'streaming', isInGrace: false });
    leave();
    await until(() => run.isInGrace);
  });

  test('has all that is stored once somebody has looked for a place in it', async () => {
    const run = await begun();
    const text = Array.from({ length: 200 }, (_, n) => `id: ${n}\ndata: ${'x'.repeat(900)}\n\n`);
    for (const one of text) {
      say(run, one);
      await run.carried?.askForReaders();
    }
    const own = runOf(NAME, { maxBytes: 65_536 });
    own.follow(run);
    await there.follow(own);
    expect(own.stream.log).toMatchObject({ start: 0, end: text.join('').length });
    say(run, 'id: last\ndata\n\n');
    await run.carried?.askForReaders();
    await there.follow(own);
    expect(own.stream.log.end).toBe(text.join('').length + 15);
    own.abandon();
  });

  test('waits for a reader there that takes nothing, and goes on with it', async () => {
    const run = await begun();
    const { sink, own } = joined(run);
    say(run, 'data: 1\n\n');
    await got(sink, 'data: 1\n\n');
    sink.hold();
    say(run, 'data: 2\n\n');
    await run.carried?.askForReaders();
    await run.carried?.askForReaders();
    expect(own.stream.log.end).toBeLessThanOrEqual(18);
    expect(sink.end).toBeUndefined();
    sink.release();
    await got(sink, 'data: 1\n\ndata: 2\n\n');
    await complete(run);
    expect(await endOf(sink)).toBe('complete');
  });
});
