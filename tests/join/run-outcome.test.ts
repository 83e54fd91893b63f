import { expect, test } from '@jest/globals';
import { newRun, type Run } from '../../src/join/run.ts';
import { runLog } from '../../src/join/run-log.ts';
import { heldBytes } from '../../src/relay/message/held-bytes.ts';

const [A, B] = [new Error('a'), new Error('b')];
const HEAD = new Map([['content-type', 'text/event-stream']]);

function aRun(): Run {
  const progress = { hasLeft: true, mayHaveStarted: true };
  const log = runLog(heldBytes(1 << 20));
  const options = { log, maxBytes: 65_536, graceMs: () => 0, requestId: 'r', progress };
  return newRun({ ...options, onLeft() {}, onChange() {} });
}

/** What one who comes now is told. */
const toldNow = (run: Run) => run.sit({ stop: new AbortController(), holdRun: () => () => {} }).begun;

test('a run that begins again keeps the headers of its first beginning', async () => {
  const run = aRun();
  run.begin(HEAD);
  run.begin(new Map());
  expect(await toldNow(run)).toBe(HEAD);
});

test('a run that begins after its end has failed all the same', async () => {
  const run = aRun();
  run.over(A);
  run.begin(HEAD);
  await expect(toldNow(run)).rejects.toBe(A);
  expect(run.outcome()).toEqual({ head: undefined, failure: A });
});

test.each([
  ['what it has failed with first', A],
  ['that it has not failed', undefined],
])('a run that ends again keeps %s', async (_what, first) => {
  const run = aRun();
  run.over(first);
  run.over(B);
  await expect(toldNow(run)).rejects.toBe(first);
  expect(run.outcome().failure).toBe(first);
});

test('a client that has left is not told any more that the run begins', async () => {
  const run = aRun();
  const client = () => ({ stop: new AbortController(), holdRun: () => () => {} });
  const [stays, leaves] = [run.sit(client()), run.sit(client())];
  const told: string[] = [];
  void stays.begun.then(() => told.push('stays'));
  void leaves.begun.then(() => told.push('leaves'));
  leaves.leave();
  run.begin(HEAD);
  await stays.begun;
  await new Promise(setImmediate);
  expect(told).toEqual(['stays']);
});
