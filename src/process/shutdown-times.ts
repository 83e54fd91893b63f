import type { Config } from '../config/config.ts';

/** What is left open this long after the last stream was told to end is cut, in ms. */
export const LAST_WORDS_MS = 6_000;
/** For what comes besides, on a machine that is busy: being told of it, and what is closed when the streams are. */
const MARGIN_MS = 3_000;
/** What a longer timer than this does is to fire at once, in ms. */
const MAX_TIMER_MS = 2 ** 31 - 1;

/**
 * The longest time in which a process that is well shuts down in order, in ms, whatever the signal; one that takes
 * longer hangs.
 */
export function longestShutdownMs({ delayMs, graceMs }: Config['shutdown']): number {
  return Math.min(delayMs + graceMs + LAST_WORDS_MS + MARGIN_MS, MAX_TIMER_MS);
}
