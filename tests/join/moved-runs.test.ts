import { afterEach, expect, test } from '@jest/globals';
import { newRun, RUN_ELSEWHERE, type Run } from '../../src/join/run.ts';
import { dropLog, runLog } from '../../src/join/run-log.ts';
import { heldBytes } from '../../src/relay/message/held-bytes.ts';

let run: Run;
afterEach(() => {
  run.over();
  dropLog(run.log);
});

test('a run that moves goes on without a client, and still ends with the session of the last one', () => {
  const progress = { hasLeft: true, mayHaveStarted: true };
  const log = runLog(heldBytes(1 << 20));
  const options = { log, maxBytes: 65_536, graceMs: () => 60_000, requestId: 'r', progress };
  run = newRun({ ...options, onLeft() {}, onChange() {} });
  const bound: AbortController[] = [];
  const holdRun = (stop: AbortController) => {
    bound.push(stop);
    return () => void bound.splice(bound.indexOf(stop), 1);
  };
  const seat = run.sit({ stop: new AbortController(), holdRun });
  seat.leave();
  const { stop } = run;
  expect(bound).toEqual([stop]);
  run.moveElsewhere();
  expect(stop.signal.reason).toBe(RUN_ELSEWHERE);
  expect([run.isAlone(), run.stop.signal.aborted]).toEqual([true, false]);
  expect(bound).toHaveLength(1);
  expect(bound[0]).toBe(run.stop);
});

test.each([
  ['while other instances are asked', 'asked'],
  ['after a deadline of its message', 'deadline'],
] as const)('a run that moves %s is given up with its last client', async (_when, when) => {
  const progress = { hasLeft: true, mayHaveStarted: true };
  const log = runLog(heldBytes(1 << 20));
  const asked = Promise.withResolvers<void>();
  run = newRun({
    ...{ log, maxBytes: 65_536, graceMs: () => 0, requestId: 'r', progress, onLeft() {}, onChange() {} },
    askOtherInstances: () => asked.promise,
  });
  const seat = run.sit({ stop: new AbortController(), holdRun: () => () => {} });
  if (when === 'deadline') run.stop.abort(new Error('a deadline'));
  else seat.leave();
  run.moveElsewhere();
  expect(run.stop.signal.aborted).toBe(false);
  if (when === 'deadline') seat.leave();
  asked.resolve();
  await new Promise(setImmediate);
  expect(run.isGivenUp()).toBe(true);
});
