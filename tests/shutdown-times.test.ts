import { expect, test } from '@jest/globals';
import { longestShutdownMs } from '../src/shutdown-times.ts';

test('the longest shutdown has the delay, the grace, the last words and something more', () => {
  expect(longestShutdownMs({ delayMs: 5_000, graceMs: 185_000 })).toBe(199_000);
});

test('with the longest times that can be set, it is still a time that a timer can wait for', () => {
  const longest = 2 ** 31 - 1;
  expect(longestShutdownMs({ delayMs: longest, graceMs: longest })).toBe(longest);
});
