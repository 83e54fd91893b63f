import { jest } from '@jest/globals';

export interface Passed {
  /** How much later `Date.now` is, in ms; a new `Date` is of the true time. */
  readonly date?: number;
  /** How much later `performance.now` is, in ms. */
  readonly monotonic?: number;
}

/** Makes clocks of the process later for whoever asks; a later call counts from the true time again. `jest.restoreAllMocks()` ends it. */
export function passed({ date = 0, monotonic = 0 }: Passed): void {
  jest.restoreAllMocks();
  const [now, sinceStart] = [Date.now.bind(Date), performance.now.bind(performance)];
  if (date) jest.spyOn(Date, 'now').mockImplementation(() => now() + date);
  if (monotonic) jest.spyOn(performance, 'now').mockImplementation(() => sinceStart() + monotonic);
}
