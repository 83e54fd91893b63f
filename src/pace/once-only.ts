import { arrivalsIn } from './arrivals.ts';
import type { Counts } from './request-limits.ts';

/** Does the work for a text that has not come before; false if it has. If the work fails, it has not come. */
export type OnceOnly = (text: string, work: () => Promise<void>) => Promise<boolean>;

/**
 * Work that is done once for each text, at whichever instance it comes: a text counts as come for `windowMs` after its
 * work was done. One that comes twice at the same time may be worked on twice, which must do no harm.
 * Throws what `counts` throws, and what the work does.
 */
export function onceOnly(counts: Counts, name: string, windowMs: number): OnceOnly {
  const done = arrivalsIn(counts, name, windowMs);
  return async function once(text, work) {
    if ((await done.of(text)) > 0) return false;
    await work();
    await done.count(text);
    return true;
  };
}
