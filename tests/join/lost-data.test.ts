import { afterEach, beforeEach, expect, jest, test } from '@jest/globals';
import type { JoinableOptions, JoinableRuns, RunStore, TakenRun } from '../../src/join/joinable-runs.ts';
import { redisRuns } from '../../src/join/redis-runs.ts';
import type { Run } from '../../src/join/run.ts';
import { FLUSH } from '../../src/join/run-lua.ts';
import type { RunName } from '../../src/join/run-name.ts';
import { heldBytes } from '../../src/relay/message/held-bytes.ts';
import type { Redis } from '../../src/storage/redis.ts';
import { runsEnded } from '../support/join-instances.ts';
import { connected, describeWithRedis, type RedisServer, startRedis } from '../support/redis.ts';
import { runSealer } from '../support/run-sealer.ts';
import { sleep } from '../support/sleep.ts';

jest.setTimeout(30_000);

let server: RedisServer;
let opened: { readonly redis: Redis; readonly store: RunStore }[];
beforeEach(async () => {
  opened = [];
  server = await startRedis();
});
afterEach(async () => {
  for (const { store } of opened) await store.close();
  for (const { redis } of opened) redis.close();
  await server.stop();
});

const OPTIONS: JoinableOptions = {
  times: { keepMs: 5_000, rememberMs: 5_000, graceMs: 0 },
  ...{ maxBytes: 65_536, maxExecutionMs: 1_000, budget: heldBytes(1 << 24) },
  onLeft() {},
  onMoved() {},
};

/** The runs of one more instance. */
async function instance(): Promise<{ readonly runs: JoinableRuns; readonly redis: Redis }> {
  const redis = await connected(server.url);
  const store = redisRuns(redis, runSealer);
  opened.push({ redis, store });
  return { runs: store.open(OPTIONS), redis };
}

const NAME: RunName = { conversation: 'c', message: 'm', key: 'k', isKept: true };

/** Enters the message; resolves with its run, and whether that begins with it, or with the code of the problem. */
function enter(runs: JoinableRuns): Promise<{ readonly run: Run; readonly isNew: boolean } | string> {
  const progress = { hasLeft: true, mayHaveStarted: true };
  return runs
    .enter(NAME, {
      ...{ lastEventId: undefined, requestId: 'r', progress },
      join({ run }) {
        run.sit({ stop: new AbortController(), holdRun: () => () => {} });
        return { run, isNew: false };
      },
      begin: (run) => ({ run, isNew: true }),
    })
    .then((entered) => entered ?? 'nothing')
    .catch(({ code }) => code as string);
}

/** Begins the run of the message; resolves once its first bytes are stored. */
async function begin(runs: JoinableRuns): Promise<Run> {
  const entered = await enter(runs);
  if (typeof entered === 'string') throw new Error(entered);
  const { run } = entered;
  run.begin(new Map());
  run.keep(() => 'what is needed to go on');
  run.stream.outlet.open({ ...SOURCE, resumeState: () => 'how far it has come' });
  run.stream.outlet.write(Buffer.from('data: 1\n\n'), false);
  for (;;) {
    const [key = ''] = (await server.command('KEYS', 'bot-relay:{runs}:run:*')) as string[];
    if ((await server.command('HGET', key, 'cursor')) !== null) return run;
    await sleep(20);
  }
}

const SOURCE = { full() {}, drained() {}, mayBeat: () => true, closed() {} };

function end(run: Run): void {
  run.stream.outlet.complete();
  run.over();
}

describeWithRedis('a run of which Redis has lost everything', () => {
  test('is joined at the instance that carries it, and its message is not sent again', async () => {
    const { runs } = await instance();
    const run = await begin(runs);
    await server.command('FLUSHALL');
    const again = await enter(runs);
    expect(again).toMatchObject({ isNew: false });
    const other = await instance();
    while ((await enter(other.runs)) !== 'run_not_kept') await sleep(20);
    end(run);
  });

  test('is over for all once it has ended', async () => {
    const { runs } = await instance();
    const run = await begin(runs);
    await server.command('FLUSHALL');
    end(run);
    for (let keys: unknown = []; JSON.stringify(keys) === '[]'; await sleep(20)) {
      keys = await server.command('KEYS', 'bot-relay:{runs}:run:*');
    }
    await runsEnded(server);
    for (const one of [runs, (await instance()).runs]) expect(await enter(one)).toBe('run_over');
  });

  test('is joined at the instance that has taken it over, too', async () => {
    const { runs: lost, redis } = await instance();
    await begin(lost);
    const { runs } = await instance();
    const taken = Promise.withResolvers<TakenRun>();
    runs.whenTaken(taken.resolve);
    const joined = await enter(runs);
    if (typeof joined === 'string') throw new Error(joined);
    while (joined.run.log.end === 0) await sleep(20);
    redis.close();
    const [key = ''] = (await server.command('KEYS', 'bot-relay:{runs}:run:*')) as string[];
    await server.command('HSET', key, 'lease', '0');
    const { run } = await taken.promise;
    run.stream.outlet.open(SOURCE);
    await server.command('FLUSHALL');
    expect(await enter(runs)).toMatchObject({ isNew: false });
    end(run);
  });

  test('is asked about as soon as Redis is there again', async () => {
    const redis = await connected(server.url);
    let flushes = 0;
    let onListening = () => {};
    const observed: Redis = {
      ...redis,
      script(lua) {
        const call = redis.script(lua);
        return (keys, args) => {
          if (lua === FLUSH) flushes++;
          return call(keys, args);
        };
      },
      subscribe: async (channel, listener, onReady = () => {}) => {
        onListening = onReady;
        await redis.subscribe(channel, listener);
      },
    };
    const store = redisRuns(observed, runSealer);
    opened.push({ redis, store });
    const run = await begin(store.open(OPTIONS));
    await server.command('FLUSHALL');
    flushes = 0;
    onListening();
    expect(flushes).toBe(1);
    const other = await instance();
    while ((await enter(other.runs)) !== 'run_not_kept') await sleep(20);
    end(run);
  });

  test('begins anew if its name was forgotten before', async () => {
    const { runs } = await instance();
    const run = await begin(runs);
    await runs.forget(NAME.conversation);
    const again = await enter(runs);
    if (typeof again === 'string') throw new Error(again);
    expect(again.isNew).toBe(true);
    for (const one of [run, again.run]) end(one);
  });
});
