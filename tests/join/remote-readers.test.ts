import { afterEach, beforeEach, expect, jest, test } from '@jest/globals';
import { type RemoteReaders, remoteReaders, SESSION_OVER } from '../../src/join/remote-readers.ts';
import { newRun, type Run } from '../../src/join/run.ts';
import { dropLog, runLog } from '../../src/join/run-log.ts';
import type { Outlet, OutletSource } from '../../src/join/run-outlet.ts';
import { advanceClocks } from '../support/advance-clocks.ts';

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
  jest.restoreAllMocks();
  run.over();
  dropLog(run.log);
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

const write = (bytes: number) => run.stream.outlet.write(Buffer.alloc(bytes), false);

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

test('the end of the last session elsewhere ends the run, unless somebody else has looked at it since', () => {
  others.update(FOLLOWED_MS, 0);
  others.endUnread(SESSION_OVER);
  advanceClocks({ monotonic: 2_000 });
  others.update(FOLLOWED_MS - 100, 0);
  others.update(0, 0);
  expect([run.isAlone(), run.stop.signal.aborted]).toEqual([true, false]);
  others.update(FOLLOWED_MS, 0);
  others.endUnread(SESSION_OVER);
  advanceClocks({ monotonic: 4_000 });
  others.update(1_000, 0);
  advanceClocks({ monotonic: 6_000 });
  others.update(0, 0);
  expect(run.stop.signal.reason).toBe(SESSION_OVER);
});

test('a run that readers elsewhere have left is bound to the session of the last client here, whoever came first', () => {
  others.update(FOLLOWED_MS, 0);
  const session = { held: 0 };
  const holdRun = () => {
    session.held++;
    return () => void session.held--;
  };
  run.sit({ stop: new AbortController(), holdRun }).leave();
  others.update(0, 0);
  expect([run.isAlone(), session.held]).toEqual([true, 1]);
  run.over();
  expect(session.held).toBe(0);
});
