import { keyPart } from '../storage/redis-key.ts';
import type { Counts } from './request-limits.ts';

/** Counts how often each text has arrived, at all instances that share the counts. Throws what the counts throw. */
interface Arrivals {
  /** Counts one more arrival of a text; returns how many there are now. No two callers get the same number. */
  add(text: string): Promise<number>;
  /** How often a text has arrived. */
  countOf(text: string): Promise<number>;
}

/** Counts texts under `name`; a text is forgotten `windowMs` after its first arrival, or a little later. */
export function arrivalsIn(counts: Counts, name: string, windowMs: number): Arrivals {
  const store = counts(name);
  store.init?.({ windowMs } as Parameters<NonNullable<typeof store.init>>[0]);
  return {
    add: async (text) => (await store.increment(keyPart(text))).totalHits,
    // The store of Redis returns NaN for a text that has never arrived.
    countOf: async (text) => (await store.get?.(keyPart(text)))?.totalHits || 0,
  };
}

/** Does `work` unless it was done for this text before; returns false if it was. Work that fails counts as not done. */
export type RunOnce = (text: string, work: () => Promise<void>) => Promise<boolean>;

/**
 * Makes the function that does work once for each text, over all instances: that it was done is known for `windowMs`.
 * If a text arrives twice at the same time, its work may be done twice, which must be harmless. The function throws
 * what `counts` throws, and what the work throws.
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
