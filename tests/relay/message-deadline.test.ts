import { afterEach, beforeEach, describe, expect, jest, test } from '@jest/globals';
import { deadlines } from '../../src/relay/message/deadlines.ts';
import { lastEventIdOf, messageDeadline } from '../../src/relay/message/message-deadline.ts';
import { type MessageStarts, messageStarts } from '../../src/relay/message/message-starts.ts';

const MAX_MS = 1_000;

let now: number;
let starts: MessageStarts;
beforeEach(() => {
  now = 0;
  starts = messageStarts({ maxExecutionMs: MAX_MS, now: () => now });
});

const deadlineOf = (isResumption: boolean, name: string | undefined = 'one') =>
  messageDeadline({ starts, name, isResumption, maxExecutionMs: MAX_MS });

describe('the deadline of a message', () => {
  test('goes on in each of its resumptions, also in those that are sent with a second key', () => {
    expect(deadlineOf(false).begin()).toBe(MAX_MS);
    now = 400;
    const resumption = deadlineOf(true);
    expect([resumption.begin(), resumption.begin()]).toEqual([600, 600]);
    now = 700;
    expect(deadlineOf(true).begin()).toBe(300);
    now = MAX_MS;
    expect(() => deadlineOf(true).check()).toThrow(expect.objectContaining({ code: 'deadline_exceeded' }));
    deadlineOf(false).check();
  });

  test('begins with a resumption whose message is not known', () => {
    expect(deadlineOf(true).begin()).toBe(MAX_MS);
    now = 400;
    expect(deadlineOf(true).begin()).toBe(600);
  });

  test('is forgotten when the answer is complete', () => {
    deadlineOf(false).begin();
    now = 400;
    deadlineOf(true).ended();
    expect(deadlineOf(true).begin()).toBe(MAX_MS);
  });

  test('is whole each time for a message that has no name', () => {
    const nameless = messageDeadline({ starts, name: undefined, isResumption: true, maxExecutionMs: MAX_MS });
    for (now of [0, 400]) expect(nameless.begin()).toBe(MAX_MS);
    nameless.ended();
  });
});

test('an empty Last-Event-ID is none', () => {
  expect(['', '7', undefined].map((id) => lastEventIdOf({ 'last-event-id': id }))).toEqual([
    undefined,
    '7',
    undefined,
  ]);
});

describe('the timers of a message', () => {
  beforeEach(() => {
    jest.useFakeTimers();
  });
  afterEach(() => {
    jest.useRealTimers();
  });
  const start = () => {
    const stop = new AbortController();
    const timers = deadlines(stop, { responseTimeoutMs: 100, maxExecutionMs: 1_000 });
    return { timers, reason: () => stop.signal.reason?.code as string | undefined };
  };

  test('start again each time it is sent', () => {
    const { timers, reason } = start();
    timers.start();
    jest.advanceTimersByTime(99);
    timers.start(500);
    expect(jest.getTimerCount()).toBe(1);
    jest.advanceTimersByTime(99);
    expect(reason()).toBeUndefined();
    jest.advanceTimersByTime(1);
    expect(reason()).toBe('upstream_timeout');
    timers.clear();
    expect(jest.getTimerCount()).toBe(0);
  });

  test('leave what is left of the execution when it is answered', () => {
    const { timers, reason } = start();
    timers.start(500);
    timers.answered();
    jest.advanceTimersByTime(499);
    expect(reason()).toBeUndefined();
    jest.advanceTimersByTime(1);
    expect(reason()).toBe('deadline_exceeded');
  });

  test('end with it, also after the time in which it had to be answered', () => {
    const { timers, reason } = start();
    timers.start(500);
    timers.answered();
    jest.advanceTimersByTime(200);
    expect(jest.getTimerCount()).toBe(1);
    timers.clear();
    expect(jest.getTimerCount()).toBe(0);
    expect(reason()).toBeUndefined();
  });
});
