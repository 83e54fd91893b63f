import { afterEach, beforeEach, describe, expect, jest, test } from '@jest/globals';
import { Problem } from '../../src/errors.ts';
import type { Run } from '../../src/join/run.ts';
import type { RunName } from '../../src/join/run-name.ts';
import type { Outlet } from '../../src/join/run-outlet.ts';
import { openRuns, type Runs, type RunsOptions } from '../../src/join/runs.ts';
import { heldBytes } from '../../src/relay/message/held-bytes.ts';
import { codeThrownBy } from '../support/thrown-problem.ts';

const TIMES = { keepMs: 1_000, rememberMs: 5_000, graceMs: 100 };

beforeEach(() => {
  jest.useFakeTimers();
});
afterEach(() => {
  expect(jest.getTimerCount()).toBe(0);
  jest.useRealTimers();
});

const nameOf = (key: string, isKept = true): RunName => ({ conversation: 'c', message: 'm', key, isKept });

function open(options: Partial<RunsOptions> = {}) {
  const budget = heldBytes(1 << 20);
  return openRuns({ times: TIMES, maxBytes: 65_536, budget, onLeft: () => {}, ...options });
}

/** Begins a run that has one client; returns what ends both. */
function begin(runs: Runs, name: RunName) {
  const progress = { hasLeft: true, mayHaveStarted: true };
  const run = runs.claim(name, { requestId: 'r', progress });
  const seat = run.sit({ stop: new AbortController(), holdRun: () => () => {} });
  run.begin(new Map([['Content-Type', 'text/event-stream']]));
  run.stream.outlet.open({ full() {}, drained() {}, mayBeat: () => true, closed() {} });
  return {
    run,
    leave: seat.leave,
    end() {
      run.stream.outlet.complete();
      run.over();
      seat.leave();
    },
  };
}

const write = ({ stream }: Run, bytes: number) => stream.outlet.write(Buffer.alloc(bytes, 'x'), false);

/** A reader that can be full; it keeps what it gets. */
function reader() {
  const got: (string | number)[] = [];
  const state = { isFull: false };
  const outlet: Outlet = {
    open() {},
    write: (bytes) => got.push(bytes.length),
    isFull: () => state.isFull,
    hasBegun: () => got.length > 0,
    complete: () => got.push('end'),
    endEarly: ({ code }, isCut) => got.push(isCut ? `${code}, cut` : code),
  };
  return { outlet, got, state };
}

describe('names', () => {
  test('go from live to kept to remembered to forgotten, and leave no timer', () => {
    const runs = open();
    const { run, end } = begin(runs, nameOf('a'));
    expect(runs.find(nameOf('a'), undefined)).toEqual({ run, at: 0, state: 'live' });
    expect(runs.find(nameOf('b'), undefined)).toBeUndefined();
    write(run, 10);
    end();
    const found = runs.find(nameOf('a'), undefined);
    expect(found).toEqual({ run: found?.run, at: 0, state: 'ended' });
    expect(found?.run.log === run.log).toBe(true);
    expect(runs.bytes()).toBeGreaterThan(0);
    jest.advanceTimersByTime(TIMES.keepMs);
    expect(runs.bytes()).toBe(0);
    expect(codeThrownBy(() => runs.find(nameOf('a'), undefined))).toBe('run_over');
    expect(runs.find(nameOf('a'), '1')).toBeUndefined();
    expect(runs.count()).toBe(1);
    jest.advanceTimersByTime(TIMES.rememberMs);
    expect(runs.count()).toBe(0);
    expect(runs.find(nameOf('a'), undefined)).toBeUndefined();
  });

  test('that are not kept are forgotten with their runs, and so are those that never began', () => {
    const runs = open();
    begin(runs, nameOf('a', false)).end();
    const progress = { hasLeft: true, mayHaveStarted: false };
    runs.claim(nameOf('b'), { requestId: 'r', progress }).over(new Problem('rate_limited', 'No.'));
    expect(runs.count()).toBe(0);
    expect(runs.bytes()).toBe(0);
  });

  test('are bounded: the oldest that are over go first', () => {
    const runs = open({ maxNames: 3 });
    const live = begin(runs, nameOf('live'));
    for (const body of ['a', 'b', 'c', 'd']) begin(runs, nameOf(body)).end();
    expect(runs.count()).toBe(3);
    expect(runs.find(nameOf('b'), undefined)).toBeUndefined();
    expect(runs.find(nameOf('c'), undefined)?.state).toBe('ended');
    expect(runs.find(nameOf('live'), undefined)?.state).toBe('live');
    live.end();
    runs.forget('c');
    expect(runs.count()).toBe(0);
    expect(runs.bytes()).toBe(0);
    jest.advanceTimersByTime(TIMES.keepMs + TIMES.rememberMs);
  });

  test('of one conversation are forgotten, and its live runs are not kept after that', () => {
    const runs = open();
    const { run, end } = begin(runs, nameOf('a'));
    write(run, 10);
    begin(runs, nameOf('b')).end();
    runs.forget('c', nameOf('b'));
    expect(runs.find(nameOf('a'), undefined)).toBeUndefined();
    expect(runs.find(nameOf('b'), undefined)?.state).toBe('ended');
    end();
    expect(runs.find(nameOf('a'), undefined)).toBeUndefined();
    jest.advanceTimersByTime(TIMES.keepMs + TIMES.rememberMs);
    expect([runs.count(), runs.bytes()]).toEqual([0, 0]);
  });
});

describe('bytes', () => {
  test('of all runs are bounded: those that have ended make room', () => {
    const runs = open({ budget: heldBytes(40_000) });
    const old = begin(runs, nameOf('old'));
    write(old.run, 20_000);
    old.end();
    const { run, end } = begin(runs, nameOf('new'));
    write(run, 30_000);
    expect(codeThrownBy(() => runs.find(nameOf('old'), undefined))).toBe('run_over');
    expect(runs.find(nameOf('new'), undefined)?.at).toBe(0);
    // Now there is no room at all, and the log would have a gap.
    write(run, 30_000);
    expect(runs.bytes()).toBe(0);
    expect(codeThrownBy(() => runs.find(nameOf('new'), undefined))).toBe('run_not_kept');
    end();
    jest.advanceTimersByTime(TIMES.keepMs + TIMES.rememberMs);
  });

  test('that find no room go to the fastest reader all the same, and end the others', () => {
    const runs = open({ budget: heldBytes(40_000) });
    const { run, end } = begin(runs, nameOf('a'));
    const [fast, slow] = [reader(), reader()];
    const full: (() => void)[] = [];
    for (const { outlet } of [fast, slow]) {
      outlet.open = (source) => full.push(() => source.full());
      run.stream.read(outlet, 0, () => {});
    }
    write(run, 10_000);
    for (const isFull of full) isFull();
    write(run, 100);
    expect([fast.got, slow.got]).toEqual([[10_000], [10_000]]);
    slow.outlet.write = () => {};
    write(run, 60_000);
    // Both have got as much: so both get it.
    expect(fast.got).toEqual([10_000, 100, 60_000]);
    write(run, 5);
    run.stream.outlet.complete();
    expect(fast.got.slice(-2)).toEqual([5, 'end']);
    end();
    jest.advanceTimersByTime(TIMES.keepMs + TIMES.rememberMs);
  });

  test('hold the service back once no reader that is left can take more', () => {
    const runs = open();
    const { run, end } = begin(runs, nameOf('a'));
    let isPaused = false;
    run.stream.outlet.open({
      ...{ mayBeat: () => true, closed() {} },
      full: () => (isPaused = true),
      drained: () => (isPaused = false),
    });
    const [ended, slow] = [reader(), reader()];
    let tellFull = () => {};
    slow.outlet.open = (source) => {
      tellFull = () => source.full();
    };
    const first = run.stream.read(ended.outlet, 0, () => {});
    run.stream.read(slow.outlet, 0, () => {});
    write(run, 10);
    tellFull();
    expect(isPaused).toBe(false);
    first.end(new Problem('session_ended', 'It has ended.'));
    expect(isPaused).toBe(true);
    end();
    jest.advanceTimersByTime(TIMES.keepMs + TIMES.rememberMs);
  });

  test('hold the service back when each write finds no reader with room', () => {
    const runs = open();
    const { run, end } = begin(runs, nameOf('a'));
    let pauses = 0;
    run.stream.outlet.open({ full: () => pauses++, drained() {}, mayBeat: () => true, closed() {} });
    const slow = reader();
    slow.outlet.open = (source) => source.full();
    run.stream.read(slow.outlet, 0, () => {});
    const before = pauses;
    write(run, 10);
    expect(pauses).toBe(before + 1);
    end();
    jest.advanceTimersByTime(TIMES.keepMs + TIMES.rememberMs);
  });

  test('are not given to a reader that has closed before it begins', () => {
    const runs = open();
    const { run, end } = begin(runs, nameOf('a'));
    write(run, 10);
    const gone = reader();
    gone.outlet.open = (source) => source.closed();
    let closed = 0;
    run.stream.read(gone.outlet, 0, () => closed++);
    write(run, 10);
    run.stream.outlet.complete();
    expect([gone.got, closed]).toEqual([[], 1]);
    end();
    jest.advanceTimersByTime(TIMES.keepMs + TIMES.rememberMs);
  });

  test('of a run that made room, but is still read, count until its last client has left', () => {
    const runs = open({ budget: heldBytes(40_000) });
    const olds = ['a', 'b'].map((key) => {
      const { run, end } = begin(runs, nameOf(key));
      write(run, 10_000);
      const late = run.sit({ stop: new AbortController(), holdRun: () => () => {} });
      end();
      return late;
    });
    const before = runs.bytes();
    const { run, end } = begin(runs, nameOf('new'));
    write(run, 30_000);
    // There is no room for it: what is read is not forgotten, and the bound holds.
    expect(runs.bytes()).toBe(before);
    expect(codeThrownBy(() => runs.find(nameOf('a'), undefined))).toBe('run_over');
    expect(codeThrownBy(() => runs.find(nameOf('new'), undefined))).toBe('run_not_kept');
    for (const late of olds) late.leave();
    expect(runs.bytes()).toBe(0);
    end();
    jest.advanceTimersByTime(TIMES.keepMs + TIMES.rememberMs);
  });

  test('are kept for a client that still reads, and given back after it', () => {
    const runs = open();
    const { run, end } = begin(runs, nameOf('a'));
    write(run, 10);
    const late = run.sit({ stop: new AbortController(), holdRun: () => () => {} });
    end();
    jest.advanceTimersByTime(TIMES.keepMs);
    expect(runs.bytes()).toBeGreaterThan(0);
    late.leave();
    expect(runs.bytes()).toBe(0);
    jest.advanceTimersByTime(TIMES.rememberMs);
  });
});

test('an ended run that nobody reads is made anew for whom comes, with all that it had', async () => {
  const runs = open();
  const first = begin(runs, nameOf('a'));
  first.run.headers.set('RateLimit', 'r=1');
  write(first.run, 10);
  first.end();
  for (let n = 0; n < 2; n += 1) {
    const found = runs.find(nameOf('a'), undefined);
    expect(found).toMatchObject({ at: 0, state: 'ended' });
    expect(found?.run === first.run).toBe(false);
    expect([...(found?.run.headers ?? [])]).toEqual([['RateLimit', 'r=1']]);
    const seat = found?.run.sit({ stop: new AbortController(), holdRun: () => () => {} });
    expect([...((await seat?.begun) ?? [])]).toEqual([['Content-Type', 'text/event-stream']]);
    const { outlet, got } = reader();
    void seat?.read(outlet, 0);
    expect(got).toEqual([10, 'end']);
    // Another one reads the same.
    expect(runs.find(nameOf('a'), undefined)?.run === found?.run).toBe(true);
    seat?.leave();
  }
  jest.advanceTimersByTime(TIMES.keepMs + TIMES.rememberMs);
  expect([runs.count(), runs.bytes()]).toEqual([0, 0]);
});

test('an ended run that was found and not read is not kept a second time', () => {
  const runs = open();
  const { run, end } = begin(runs, nameOf('a'));
  write(run, 10);
  end();
  const find = () => runs.find(nameOf('a'), undefined)?.run;
  expect(runs.find(nameOf('a'), 'unknown')).toBeUndefined();
  const unread = find();
  expect(find() === unread).toBe(false);
  const stop = new AbortController();
  stop.abort(new Problem('session_ended', 'It has ended.'));
  const refused = find();
  expect(codeThrownBy(() => refused?.sit({ stop, holdRun: () => () => {} }))).toBe('session_ended');
  expect(find() === refused).toBe(false);
  jest.advanceTimersByTime(TIMES.keepMs);
  expect(runs.bytes()).toBe(0);
  jest.advanceTimersByTime(TIMES.rememberMs);
});

test('a client that is ended after the end of its run takes no more of it', () => {
  const runs = open();
  const { run, end } = begin(runs, nameOf('a'));
  write(run, 10);
  const stop = new AbortController();
  const seat = run.sit({ stop, holdRun: () => () => {} });
  const slow = reader();
  void seat.read(slow.outlet, 0);
  end();
  expect(slow.got).toEqual([10, 'end']);
  stop.abort(new Problem('too_many_streams', 'There are newer ones.'));
  expect(slow.got).toEqual([10, 'end', 'too_many_streams, cut']);
  jest.advanceTimersByTime(TIMES.keepMs + TIMES.rememberMs);
});

test('a client that was ended already gets no seat, and a run without clients stays as it is', () => {
  const outcomes: string[] = [];
  const runs = open({ onLeft: (_run, outcome) => outcomes.push(outcome) });
  const { run, leave, end } = begin(runs, nameOf('a'));
  leave();
  const stop = new AbortController();
  stop.abort(new Problem('session_ended', 'It has ended.'));
  expect(codeThrownBy(() => run.sit({ stop, holdRun: () => () => {} }))).toBe('session_ended');
  expect([run.clients(), run.stop.signal.aborted, outcomes]).toEqual([0, false, []]);
  end();
  jest.advanceTimersByTime(TIMES.keepMs + TIMES.rememberMs);
});

test('a run that was given up before its stream begins closes that at once', () => {
  const runs = open();
  const progress = { hasLeft: true, mayHaveStarted: true };
  const run = runs.claim(nameOf('a'), { requestId: 'r', progress });
  const stop = new AbortController();
  run.sit({ stop, holdRun: () => () => {} });
  stop.abort(Symbol('left'));
  jest.advanceTimersByTime(TIMES.graceMs);
  expect(run.stop.signal.aborted).toBe(true);
  let closed = 0;
  run.stream.outlet.open({ full() {}, drained() {}, mayBeat: () => true, closed: () => closed++ });
  expect(closed).toBe(1);
  run.over();
  jest.advanceTimersByTime(TIMES.keepMs + TIMES.rememberMs);
  expect(runs.count()).toBe(0);
});
