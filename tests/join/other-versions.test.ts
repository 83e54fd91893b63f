import { afterEach, beforeEach, expect, jest, test } from '@jest/globals';
import { type Problem, problemDocument } from '../../src/errors.ts';
import type { JoinableOptions, JoinableRuns, RunStore } from '../../src/join/joinable-runs.ts';
import { redisRuns } from '../../src/join/redis-runs.ts';
import type { Run } from '../../src/join/run.ts';
import { runCodec, type StoredPart } from '../../src/join/run-codec.ts';
import type { Outlet } from '../../src/join/run-outlet.ts';
import { heldBytes } from '../../src/relay/message/held-bytes.ts';
import type { Redis } from '../../src/storage/redis.ts';
import { keysWhen } from '../support/join-instances.ts';
import { connected, describeWithRedis, type RedisServer, startRedis } from '../support/redis.ts';
import { runSealer } from '../support/run-sealer.ts';
import { sleep } from '../support/sleep.ts';

jest.setTimeout(30_000);

let server: RedisServer;
let redis: Redis;
let stores: RunStore[];
let faults: unknown[];
beforeEach(async () => {
  server = await startRedis();
  redis = await connected(server.url);
  stores = [];
  faults = [];
});
afterEach(async () => {
  for (const store of stores) await store.close();
  redis.close();
  await server.stop();
});

const OPTIONS: JoinableOptions = {
  times: { keepMs: 0, rememberMs: 5_000, graceMs: 0 },
  ...{ maxBytes: 65_536, maxExecutionMs: 1_000, budget: heldBytes(1 << 24) },
  onLeft() {},
  onMoved() {},
  onFault: (_run, error) => void faults.push(error),
};

/** The runs of one more instance. */
function open(): JoinableRuns {
  const store = redisRuns(redis, runSealer);
  stores.push(store);
  return store.open(OPTIONS);
}

/** Enters the message; whoever begins its run, or joins it, has a seat there. */
async function enter(runs: JoinableRuns) {
  const name = { conversation: 'c', message: 'm', key: 'a', isKept: true };
  const progress = { hasLeft: true, mayHaveStarted: true };
  const sit = () => ({ stop: new AbortController(), holdRun: () => () => {} });
  const at = (run: Run) => ({ run, seat: run.sit(sit()), another: () => run.sit(sit()) });
  const entry = { lastEventId: undefined, requestId: 'r', progress, begin: at };
  const entered = await runs.enter(name, { ...entry, join: ({ run }) => at(run) });
  if (!entered) throw new Error('nothing was entered');
  return entered;
}

/** Begins the stream of a run. */
function begin({ run }: { readonly run: Run }): void {
  run.begin(new Map());
  run.stream.outlet.open({ full() {}, drained() {}, mayBeat: () => true, closed() {} });
  run.stream.outlet.write(Buffer.from('data: 1\n\n'), false);
}

/** Takes a stream, and tells with which code it ends early. */
function reader(breaksBy?: (problem: Problem, isCut: boolean) => boolean) {
  const began = Promise.withResolvers<void>();
  const ended = Promise.withResolvers<readonly [code: string, isCut: boolean]>();
  const outlet: Outlet = {
    ...{ open() {}, isFull: () => false, hasBegun: () => true, complete() {} },
    write: () => began.resolve(),
    endEarly(problem, isCut) {
      if (breaksBy?.(problem, isCut)) throw new Error('this reader fails');
      ended.resolve([problemDocument(problem, 'r').code, isCut]);
    },
  };
  return { outlet, began: began.promise, ended: ended.promise };
}

/** The id of the run in Redis, and how a value is sealed for it. */
async function stored() {
  const keys = await keysWhen(server, (found) => found.some((key) => key.includes(':run:')));
  const key = keys.find((one) => one.includes(':run:')) ?? '';
  const id = key.split(':').at(-1) ?? '';
  return { key, id, seal: (value: unknown, what: StoredPart) => runCodec(runSealer).seal(value, id, what) };
}

/** Stores an end as another version does. */
async function endWith(problem: object): Promise<void> {
  const { key, id, seal } = await stored();
  const at = Number(await server.command('HGET', key, 'end'));
  const progress = { hasLeft: true, mayHaveStarted: true };
  const end = seal({ problem, isCut: false, at, isDropped: false, progress, headers: [] }, 'end');
  await server.command('XADD', `bot-relay:{runs}:log:${id}`, '*', 'e', end);
}

const UNKNOWN = { code: 'of_another_version', detail: 'x', options: { status: 500 } };

describeWithRedis('what an instance of another version has stored of a run', () => {
  test('ends the run for those who read it as a lost one, if it is an end with a code that is not known', async () => {
    const own = await enter(open());
    begin(own);
    const joined = await enter(open());
    await joined.seat.begun;
    const { outlet, began, ended } = reader();
    void joined.seat.read(outlet, 0);
    await began;
    await endWith(UNKNOWN);
    expect(await ended).toEqual(['answer_lost', false]);
    expect(joined.run.isOver()).toBe(true);
    expect(faults).toEqual([]);
    own.run.over();
  });

  test('ends the run for those who wait for it, and is reported as a fault, if it cannot be understood', async () => {
    const own = await enter(open());
    const { key, seal } = await stored();
    await server.command('HSET', key, 'head', seal({}, 'head'));
    const joined = await enter(open());
    await expect(joined.seat.begun).rejects.toMatchObject({ code: 'answer_lost' });
    expect(faults).toEqual([expect.any(TypeError)]);
    own.run.over();
  });
});

describeWithRedis('a fault at the end of a run that another instance carries', () => {
  test('is reported, and every reader gets an end', async () => {
    const own = await enter(open());
    begin(own);
    const joined = await enter(open());
    const isFirst = (_problem: Problem, isCut: boolean) => !isCut;
    const all = [reader(isFirst), reader()] as const;
    for (const [n, { outlet, began }] of all.entries()) {
      const seat = n === 0 ? joined.seat : joined.another();
      await seat.begun;
      void seat.read(outlet, 0);
      await began;
    }
    await endWith({ code: 'upstream_stream_broken', detail: 'x', options: {} });
    for (const { ended } of all) expect(await ended).toEqual(['answer_lost', true]);
    while (!joined.run.isOver()) await sleep(10);
    expect(faults).toEqual([new Error('this reader fails')]);
    own.run.over();
  });
});
