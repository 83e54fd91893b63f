import { jest } from '@jest/globals';

export interface ClockAdvance {
  /** By how much `Date.now` is advanced, in ms; `new Date()` keeps the real time. */
  readonly date?: number;
  /** By how much `performance.now` is advanced, in ms. */
  readonly monotonic?: number;
}

/** Advances the clocks of this process. Each call counts from the real time; `jest.restoreAllMocks()` ends it. */
export function advanceClocks({ date = 0, monotonic = 0 }: ClockAdvance): void {
  jest.restoreAllMocks();
  const [now, sinceStart] = [Date.now.bind(Date), performance.now.bind(performance)];
  if (date) jest.spyOn(Date, 'now').mockImplementation(() => now() + date);
  if (monotonic) jest.spyOn(performance, 'now').mockImplementation(() => sinceStart() + monotonic);
}
