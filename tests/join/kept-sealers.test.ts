import { expect, jest, test } from '@jest/globals';
import type { JoinableRuns } from '../../src/join/joinable-runs.ts';
import type { Run } from '../../src/join/run.ts';
import { describeWithRedis } from '../support/redis.ts';
import { runSealer } from '../support/run-sealer.ts';
import { RUN_NAME, runStores } from '../support/run-stores.ts';
import { until } from '../support/until.ts';

jest.setTimeout(30_000);

const stores = runStores();

/** The runs of one more instance, and those of which it keeps keys. */
async function instance() {
  const kept = new Set<string>();
  const sealerOf = (run: string) => {
    kept.add(run);
    return runSealer(run);
  };
  const { runs } = await stores.open(
    Object.assign(sealerOf, { forget: (run: string) => void kept.delete(run) }),
  );
  return { runs, kept };
}

/** Enters the message; resolves with its run, and what leaves that. */
async function enter(runs: JoinableRuns, granted = Promise.resolve()) {
  const sit = (run: Run) => {
    const { leave } = run.sit({ stop: new AbortController(), holdRun: () => () => {} });
    return { run, leave };
  };
  const progress = { hasLeft: true, mayHaveStarted: true };
  const entry = { lastEventId: undefined, requestId: 'r', progress, granted };
  const seated = await runs.enter(RUN_NAME, { ...entry, join: ({ run }) => sit(run), begin: sit });
  if (!seated) throw new Error('nobody has entered');
  return seated;
}

const SOURCE = { full() {}, drained() {}, mayBeat: () => true, closed() {} };

describeWithRedis('the keys of a run', () => {
  test('are kept by an instance until the run is over there', async () => {
    const carrier = await instance();
    const other = await instance();
    const { run } = await enter(carrier.runs);
    run.begin(new Map());
    run.stream.outlet.open(SOURCE);
    run.stream.outlet.write(Buffer.from('data: 1\n\n'), false);
    await expect(enter(other.runs, Promise.reject(new Error('refused')))).rejects.toThrow('refused');
    expect(other.kept.size).toBe(0);
    const followed = await enter(other.runs);
    await until(() => followed.run.log.end > 0);
    expect([carrier.kept.size, other.kept.size]).toEqual([1, 1]);
    run.stream.outlet.complete();
    run.over();
    await until(() => followed.run.isOver());
    await until(() => carrier.kept.size + other.kept.size === 0);
    const late = await enter(other.runs);
    await until(() => late.run.isOver());
    expect(late.run.log.end).toBeGreaterThan(0);
    expect(other.kept.size).toBe(0);
  });
});
