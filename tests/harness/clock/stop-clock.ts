import { afterEach, jest } from '@jest/globals';

/** Stops `setTimeout` and `performance.now` until the end of the test; `pass` moves both. All else is real. */
export function stopClock(): void {
  jest.useFakeTimers({
    doNotFake: [
      'Date',
      'hrtime',
      'nextTick',
      'queueMicrotask',
      'setImmediate',
      'clearImmediate',
      'setInterval',
      'clearInterval',
    ],
  });
}

/** Lets `ms` pass on a stopped clock: timers that are due run. */
export function pass(ms: number): void {
  jest.advanceTimersByTime(ms);
}

afterEach(() => {
  jest.restoreAllMocks();
  jest.useRealTimers();
});
