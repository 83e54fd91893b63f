import { afterEach, beforeEach, expect, jest, test } from '@jest/globals';
import type { JoinableOptions, JoinableRuns, RunStore } from '../../src/join/joinable-runs.ts';
import { redisRuns } from '../../src/join/redis-runs.ts';
import type { Run } from '../../src/join/run.ts';
import type { RunName } from '../../src/join/run-name.ts';
import { heldBytes } from '../../src/relay/message/held-bytes.ts';
import type { Redis } from '../../src/storage/redis.ts';
import { runsEnded } from '../support/join-instances.ts';
import { connected, describeWithRedis, type RedisServer, startRedis } from '../support/redis.ts';
import { runSealer } from '../support/run-sealer.ts';

jest.setTimeout(30_000);

let server: RedisServer;
let redis: Redis;
let store: RunStore;
beforeEach(async () => {
  server = await startRedis();
  redis = await connected(server.url);
});
afterEach(async () => {
  await store.close();
  redis.close();
  await server.stop();
});

const OPTIONS: JoinableOptions = {
  times: { keepMs: 5_000, rememberMs: 5_000, graceMs: 0 },
  ...{ maxBytes: 65_536, maxExecutionMs: 1_000, budget: heldBytes(1 << 24) },
  onLeft() {},
  onMoved() {},
};

function open(options: Partial<JoinableOptions> = {}): JoinableRuns {
  store = redisRuns(redis, runSealer);
  return store.open({ ...OPTIONS, ...options });
}

const nameOf = (key: string): RunName => ({ conversation: 'c', message: `m-${key}`, key, isKept: true });

/** Enters a message; resolves with its run if it begins one, and with the state of the run that it joins. */
function enter(runs: JoinableRuns, key: string) {
  const progress = { hasLeft: true, mayHaveStarted: true };
  return runs.enter<Run | string>(nameOf(key), {
    ...{ lastEventId: undefined, requestId: 'r', progress },
    join: ({ state }) => state,
    begin: (run) => run,
  });
}

async function begin(runs: JoinableRuns, key: string, bytes = 10): Promise<Run> {
  const run = (await enter(runs, key)) as Run;
  run.begin(new Map());
  run.stream.outlet.open({ full() {}, drained() {}, mayBeat: () => true, closed() {} });
  run.stream.outlet.write(Buffer.alloc(bytes, 'x'), false);
  return run;
}

/** Ends a run; resolves once all but `left` runs have ended in Redis. */
function end(run: Run, left = 0): Promise<void> {
  run.stream.outlet.complete();
  run.over();
  return runsEnded(server, left);
}

const stored = async () => Number(await server.command('HGET', 'bot-relay:{runs}:sizes', 'all'));

describeWithRedis('names in Redis', () => {
  test('are bounded: the oldest that are over go first', async () => {
    const runs = open({ maxNames: 3 });
    const live = await begin(runs, 'live');
    for (const key of ['a', 'b', 'c']) {
      await end(await begin(runs, key), 1);
    }
    expect(await enter(runs, 'live')).toBe('live');
    expect(await enter(runs, 'c')).toBe('ended');
    // It is forgotten, so that asking for it claims it again.
    expect(await enter(runs, 'a')).toHaveProperty('begin');
    await end(live, 1);
  });

  test('are free again if Redis has not answered the claim', async () => {
    const runs = open();
    await end(await begin(runs, 'a'));
    server.pause();
    await expect(enter(runs, 'b')).rejects.toMatchObject({ code: 'session_store_unavailable' });
    server.resume();
    for (;;) {
      const run = await enter(runs, 'b').catch(() => 'failed');
      if (typeof run === 'object') return void run.over();
      await new Promise((resolve) => setTimeout(resolve, 20));
    }
  });

  test('of runs that go on are claimed again if Redis has lost its data', async () => {
    const runs = open();
    const run = await begin(runs, 'a');
    await server.command('FLUSHALL');
    run.stream.outlet.write(Buffer.from('more'), false);
    const problem = { code: 'run_not_kept' };
    for (;;) {
      const [known] = (await server.command('KEYS', 'bot-relay:{runs}:run:*')) as string[];
      if (known && (await server.command('HGET', known, 'closed')) === '1') break;
      await new Promise((resolve) => setTimeout(resolve, 20));
    }
    const other = redisRuns(redis, runSealer);
    await expect(enter(other.open(OPTIONS), 'a')).rejects.toMatchObject(problem);
    await other.close();
    run.stream.outlet.complete();
    run.over();
  });
});

describeWithRedis('logs in Redis', () => {
  test('are bounded together: those of runs that have ended make room', async () => {
    const runs = open({ maxStoredBytes: 60_000 });
    await end(await begin(runs, 'old', 30_000));
    expect(await stored()).toBeGreaterThan(30_000);
    const run = await begin(runs, 'new', 30_000);
    for (let bytes = await stored(); bytes < 30_000; bytes = await stored());
    await end(run);
    await expect(enter(runs, 'old')).rejects.toMatchObject({ code: 'run_over' });
    expect(await enter(runs, 'new')).toBe('ended');
    expect(await stored()).toBeLessThan(60_000);
  });

  test('are closed if there is no room at all, and their runs go on', async () => {
    const runs = open({ maxStoredBytes: 60_000 });
    const [one, two] = [await begin(runs, 'one', 30_000), await begin(runs, 'two', 30_000)];
    for (const run of [one, two]) {
      run.stream.outlet.complete();
      run.over();
    }
    await runsEnded(server);
    const states = await Promise.all(['one', 'two'].map((key) => enter(runs, key).catch(({ code }) => code)));
    expect(states.sort()).toEqual(['ended', 'run_over']);
  });
});
