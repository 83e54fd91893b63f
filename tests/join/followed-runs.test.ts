import { afterEach, beforeEach, expect, jest, test } from '@jest/globals';
import { CLIENT_LEFT } from '../../src/http/client-left.ts';
import type { JoinableOptions, JoinableRuns, RunStore } from '../../src/join/joinable-runs.ts';
import { redisRuns } from '../../src/join/redis-runs.ts';
import type { Run } from '../../src/join/run.ts';
import type { Outlet } from '../../src/join/run-outlet.ts';
import type { FoundRun } from '../../src/join/runs.ts';
import { heldBytes } from '../../src/relay/message/held-bytes.ts';
import type { Redis } from '../../src/storage/redis.ts';
import { keysWhen } from '../support/join-instances.ts';
import { connected, describeWithRedis, type RedisServer, startRedis } from '../support/redis.ts';
import { runSealer } from '../support/run-sealer.ts';
import { sleep } from '../support/sleep.ts';
import { until } from '../support/until.ts';
import { whileAwake } from '../support/while-awake.ts';

jest.setTimeout(30_000);

let server: RedisServer;
let redis: Redis;
let stores: RunStore[];
async function setUp() {
  server = await startRedis();
  redis = await connected(server.url);
  stores = [];
}
async function cleanUp() {
  for (const store of stores) await store.close();
  redis.close();
  await server.stop();
}
beforeEach(setUp);
afterEach(cleanUp);

async function againFromNothing() {
  await cleanUp();
  await setUp();
}

const OPTIONS: JoinableOptions = {
  times: { keepMs: 0, rememberMs: 5_000, graceMs: 0 },
  ...{ maxBytes: 65_536, maxExecutionMs: 1_000, budget: heldBytes(1 << 24) },
  onLeft() {},
  onMoved() {},
};

/** Runs of one instance. A deaf one gets nothing of what is published. */
function open(isDeaf = false): JoinableRuns {
  const store = redisRuns(isDeaf ? { ...redis, subscribe: async () => {} } : redis, runSealer);
  stores.push(store);
  return store.open(OPTIONS);
}

const client = () => ({ stop: new AbortController(), holdRun: () => () => {} });

/** Enters the message `a`. Whoever begins its run has a seat there, and so has who joins it. */
function enter(
  runs: JoinableRuns,
  progress = { hasLeft: true, mayHaveStarted: true },
  resumption: { lastEventId?: string; signal?: AbortSignal } = {},
) {
  const name = { conversation: 'c', message: 'm', key: 'a', isKept: true };
  const at = (run: Run) => ({ run, seat: run.sit(client()) });
  const entry = { lastEventId: undefined, ...resumption, requestId: 'r', progress, begin: at };
  return runs.enter(name, { ...entry, join: ({ run }: FoundRun) => at(run) }) as Promise<
    ReturnType<typeof at>
  >;
}

/** Until when Redis takes the run as followed, in ms. */
async function followedTill(): Promise<number> {
  const keys = await keysWhen(server, (found) => found.some((key) => key.includes(':run:')));
  const run = keys.find((key) => key.includes(':run:')) ?? '';
  return Number(await server.command('HGET', run, 'followed'));
}

async function isFollowed(): Promise<void> {
  while ((await followedTill()) === 0) await sleep(10);
}

describeWithRedis('a run whose last reader here leaves', () => {
  test.each([true, false])(
    'goes on for one who has just come elsewhere (sent: %s)',
    async (mayHaveStarted) => {
      const { run, seat } = await enter(open(true), { hasLeft: mayHaveStarted, mayHaveStarted });
      await enter(open());
      await isFollowed();
      seat.leave();
      await run.mayLeave();
      await until(() => run.isGivenUp() || run.clients() === 1);
      expect(run.isGivenUp()).toBe(false);
      run.over();
    },
  );

  test('is given up if nobody else reads it', async () => {
    const { run, seat } = await enter(open(), { hasLeft: false, mayHaveStarted: false });
    seat.leave();
    await expect(run.mayLeave()).rejects.toBe(CLIENT_LEFT);
    expect(run.isGivenUp()).toBe(true);
    run.over();
  });

  test(
    'goes on for one elsewhere who can take nothing now',
    whileAwake(async () => {
      const { run, seat } = await enter(open());
      run.begin(new Map());
      run.stream.outlet.open({ full() {}, drained() {}, mayBeat: () => true, closed() {} });
      const joined = await enter(open());
      const outlet = {
        ...{ write() {}, isFull: () => true, hasBegun: () => true, complete() {}, endEarly() {} },
        open: (source) => source.full(),
      } satisfies Outlet;
      await joined.seat.begun;
      void joined.seat.read(outlet, 0);
      await isFollowed();
      seat.leave();
      // For longer than one look at the run counts.
      const till = (await followedTill()) + 4_000;
      while (!run.isGivenUp() && (await followedTill()) < till) await sleep(50);
      expect(run.isGivenUp()).toBe(false);
      run.over();
      joined.run.over();
    }, againFromNothing),
  );
});

describeWithRedis('an event that is not in the log', () => {
  test('is not waited for once its client has left', async () => {
    const { run } = await enter(open());
    run.begin(new Map());
    run.stream.outlet.open({ full() {}, drained() {}, mayBeat: () => true, closed() {} });
    const stop = new AbortController();
    const entering = enter(open(), undefined, { lastEventId: 'no such event', signal: stop.signal });
    stop.abort(CLIENT_LEFT);
    await expect(entering).rejects.toBe(CLIENT_LEFT);
    run.over();
  });
});
