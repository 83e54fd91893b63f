import { expect, jest, test } from '@jest/globals';
import type { JoinableRuns, TakenRun } from '../../src/join/joinable-runs.ts';
import type { Run } from '../../src/join/run.ts';
import { FLUSH } from '../../src/join/run-lua.ts';
import type { RunName } from '../../src/join/run-name.ts';
import type { FoundRun } from '../../src/join/runs.ts';
import type { Redis } from '../../src/storage/redis.ts';
import { runsEnded } from '../support/join-instances.ts';
import { describeWithRedis } from '../support/redis.ts';
import { runSealer } from '../support/run-sealer.ts';
import { RUN_NAME, runStores } from '../support/run-stores.ts';
import { sleep } from '../support/sleep.ts';

jest.setTimeout(30_000);

const stores = runStores();
/** The runs of one more instance. */
const instance = () => stores.open();

/** Enters the message; resolves with its run, and whether that begins with it, or with the code of the problem. */
function enter(
  runs: JoinableRuns,
  { name = RUN_NAME, lastEventId }: { name?: RunName; lastEventId?: string } = {},
): Promise<{ readonly run: Run; readonly isNew: boolean } | string> {
  const progress = { hasLeft: true, mayHaveStarted: true };
  return runs
    .enter(name, {
      ...{ lastEventId, requestId: 'r', progress },
      join({ run }) {
        run.sit({ stop: new AbortController(), holdRun: () => () => {} });
        return { run, isNew: false };
      },
      begin: (run) => ({ run, isNew: true }),
    })
    .then((entered) => entered ?? 'nothing')
    .catch(({ code }) => code as string);
}

/** Joins the newest run of the message's id; resolves with its log and the offset, or with the code of the problem. */
function joinNewest(
  runs: JoinableRuns,
  lastEventId?: string,
): Promise<readonly [log: Run['log'], at: number] | string> {
  const join = ({ run, at }: FoundRun) => {
    run.sit({ stop: new AbortController(), holdRun: () => () => {} });
    return [run.log, at] as const;
  };
  return runs.newest(RUN_NAME, { lastEventId, join }).catch(({ code }) => code as string);
}

/** Begins the run of the message; resolves once its first bytes are stored. */
async function begin(runs: JoinableRuns, name = RUN_NAME): Promise<Run> {
  const entered = await enter(runs, { name });
  if (typeof entered === 'string') throw new Error(entered);
  const { run } = entered;
  run.begin(new Map());
  run.keep(() => 'what is needed to go on');
  run.stream.outlet.open({ ...SOURCE, resumeState: () => 'how far it has come' });
  run.stream.outlet.write(Buffer.from('data: 1\n\n'), false);
  for (;;) {
    const [key = ''] = (await stores.server().command('KEYS', 'bot-relay:{runs}:run:*')) as string[];
    if ((await stores.server().command('HGET', key, 'cursor')) !== null) return run;
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
    await stores.server().command('FLUSHALL');
    const again = await enter(runs);
    expect(again).toMatchObject({ isNew: false });
    const other = await instance();
    while ((await enter(other.runs)) !== 'run_not_kept') await sleep(20);
    end(run);
  });

  test('is over for all once it has ended', async () => {
    const { runs } = await instance();
    const run = await begin(runs);
    await stores.server().command('FLUSHALL');
    end(run);
    for (let keys: unknown = []; JSON.stringify(keys) === '[]'; await sleep(20)) {
      keys = await stores.server().command('KEYS', 'bot-relay:{runs}:run:*');
    }
    await runsEnded(stores.server());
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
    const [key = ''] = (await stores.server().command('KEYS', 'bot-relay:{runs}:run:*')) as string[];
    await stores.server().command('HSET', key, 'lease', '0');
    const { run } = await taken.promise;
    run.stream.outlet.open(SOURCE);
    await stores.server().command('FLUSHALL');
    expect(await enter(runs)).toMatchObject({ isNew: false });
    end(run);
  });

  test('is asked about as soon as Redis is there again', async () => {
    let flushes = 0;
    let onListening = () => {};
    const observed = (redis: Redis): Redis => ({
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
    });
    const { runs } = await stores.open(runSealer, observed);
    const run = await begin(runs);
    await stores.server().command('FLUSHALL');
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
    await runs.forget(RUN_NAME.conversation);
    const again = await enter(runs);
    if (typeof again === 'string') throw new Error(again);
    expect(again.isNew).toBe(true);
    for (const one of [run, again.run]) end(one);
  });

  test.each(['', '7'])(
    'is joined by its id alone at the instance that carries it, after id "%s"',
    async (id) => {
      const { runs } = await instance();
      const other = await instance();
      const run = await begin(runs);
      run.stream.outlet.write(Buffer.from('id: 7\ndata: 2\n\n'), false);
      await stores.server().command('FLUSHALL');
      const [log, at] = await joinNewest(runs, id || undefined);
      expect(log).toBe(run.log);
      expect(at).toBe(id ? run.log.end : 0);
      expect(await joinNewest(runs, 'unknown')).toBe('run_not_kept');
      // Its name is claimed again, for all.
      while ((await enter(other.runs)) !== 'run_not_kept') await sleep(20);
      end(run);
    },
  );

  test('is joined from after an event by who sends its message again', async () => {
    const { runs } = await instance();
    const run = await begin(runs);
    run.stream.outlet.write(Buffer.from('id: 7\ndata: 2\n\n'), false);
    await stores.server().command('FLUSHALL');
    expect(await enter(runs, { lastEventId: '7' })).toMatchObject({ isNew: false });
    end(run);
  });

  test('is not joined by its id alone if its name was forgotten before', async () => {
    const { runs } = await instance();
    const run = await begin(runs);
    await runs.forget(RUN_NAME.conversation);
    expect(await joinNewest(runs)).toBe('run_over');
    end(run);
  });

  test('is not the newest of its message id if that has a newer one', async () => {
    const { runs } = await instance();
    const first = await begin(runs);
    const newer = await begin(runs, { ...RUN_NAME, key: 'another body' });
    await stores.server().command('FLUSHALL');
    const [log] = await joinNewest(runs);
    expect(log).toBe(newer.log);
    // The other one has told Redis of its name by then.
    await sleep(2_000);
    const [later] = await joinNewest(runs);
    expect(later).toBe(newer.log);
    for (const run of [newer, first]) end(run);
  });
});
