import type { Config } from '../config/config.ts';

/** How long streams have to send their final event when the grace is over, in ms. Then all connections are cut. */
export const FINAL_EVENT_MS = 6_000;
/** Added for a busy machine: until the signal arrives, and to close what is left after the streams, in ms. */
const MARGIN_MS = 3_000;
/** The longest time of a timer, in ms. Node.js fires a longer one at once. */
const MAX_TIMER_MS = 2 ** 31 - 1;

/**
 * The longest time that an orderly shutdown can take, in ms, whatever the signal. A process that takes longer hangs.
 */
export function longestShutdownMs({ delayMs, graceMs }: Config['shutdown']): number {
  return Math.min(delayMs + graceMs + FINAL_EVENT_MS + MARGIN_MS, MAX_TIMER_MS);
}
