/** For final events, and for a busy machine until the signal arrives and all is closed, in ms. */
const REST_MS = 9_000;

/** The longest time that an orderly shutdown can take, in ms. */
export const longestShutdownMs = ({ delayMs, graceMs }: { delayMs: number; graceMs: number }): number =>
  delayMs + graceMs + REST_MS;
