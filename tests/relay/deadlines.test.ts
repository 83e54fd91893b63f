import { afterEach, beforeEach, describe, expect, jest, test } from '@jest/globals';
import { deadlines } from '../../src/relay/message/deadlines.ts';
import { lastEventIdOf } from '../../src/routes/read-run.ts';

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
