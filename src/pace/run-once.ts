import { arrivalsIn } from './arrivals.ts';
import type { Counts } from './request-limits.ts';

/** Does `work` for a text that was not seen before; returns false if it was. If the work fails, the text is not seen. */
export type RunOnce = (text: string, work: () => Promise<void>) => Promise<boolean>;

/**
 * Makes the function that does work once for each text, over all instances: a text counts as seen for `windowMs` after
 * its work was done. If a text arrives twice at the same time, its work may run twice, which must be harmless.
 * The function throws what `counts` throws, and what the work throws.
 */
export function createRunOnce(counts: Counts, name: string, windowMs: number): RunOnce {
  const done = arrivalsIn(counts, name, windowMs);
  return async function runOnce(text, work) {
    if ((await done.countOf(text)) > 0) return false;
    await work();
    await done.add(text);
    return true;
  };
}
