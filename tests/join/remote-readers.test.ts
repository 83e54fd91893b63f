import { afterEach, beforeEach, expect, test } from '@jest/globals';
import { type RemoteReaders, remoteReaders } from '../../src/join/remote-readers.ts';
import { newRun, type Run } from '../../src/join/run.ts';
import { runLog } from '../../src/join/run-log.ts';
import type { Outlet, OutletSource } from '../../src/join/run-outlet.ts';

const MAX_BYTES = 100_000;
const FOLLOWED_MS = 3_000;

let run: Run;
let others: RemoteReaders;
let isHeldBack: boolean;
beforeEach(() => {
  run = newRun({
    ...{ log: runLog({ take: () => true, release() {} }), maxBytes: MAX_BYTES, graceMs: () => 60_000 },
    ...{ requestId: 'r', progress: { hasLeft: true, mayHaveStarted: true }, onLeft() {}, onChange() {} },
  });
  isHeldBack = false;
  run.begin(new Map());
  run.stream.outlet.open({
    full() {
      isHeldBack = true;
    },
    drained() {
      isHeldBack = false;
    },
    mayBeat: () => true,
    closed() {},
  });
  others = remoteReaders(run, MAX_BYTES);
});
afterEach(() => {
  run.over();
  run.log.close();
});

/** The outlet of a client that takes all at once. */
function taking(): Outlet {
  let source: OutletSource | undefined;
  return {
    open(opened) {
      source = opened;
    },
    write() {},
    isFull: () => false,
    hasBegun: () => true,
    complete: () => source?.closed(),
    endEarly: () => source?.closed(),
  };
}

const write = (bytes: number) => run.stream.outlet.write(Buffer.alloc(bytes));

test('readers elsewhere that fell too far behind keep the run again as soon as they are told of again', async () => {
  const seat = run.sit({ stop: new AbortController(), holdRun: () => () => {} });
  void seat.read(taking(), 0);
  others.update(FOLLOWED_MS, 0);
  expect(run.clients()).toBe(2);
  for (let n = 0; n < 20; n++) write(10_000);
  await new Promise(setImmediate);
  expect(run.clients()).toBe(1);
  others.update(FOLLOWED_MS, 200_000);
  expect(run.clients()).toBe(2);
  seat.leave();
  expect(run.isAlone()).toBe(false);
});

test('readers elsewhere that come back as far behind as they were hold the service back again', () => {
  others.update(FOLLOWED_MS, 0);
  write(60_000);
  expect([isHeldBack, others.areBehind()]).toEqual([true, true]);
  others.update(0, 0);
  expect([isHeldBack, others.areBehind()]).toEqual([false, false]);
  others.update(FOLLOWED_MS, 0);
  expect([isHeldBack, others.areBehind()]).toEqual([true, true]);
  others.update(FOLLOWED_MS, 60_000);
  expect([isHeldBack, others.areBehind()]).toEqual([false, false]);
});
