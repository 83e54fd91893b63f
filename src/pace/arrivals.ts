import { keyPart } from '../storage/redis-key.ts';
import type { Counts } from './request-limits.ts';

/** Counts how often each text has arrived, at all instances that share the counts. Throws what the counts throw. */
export interface Arrivals {
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
