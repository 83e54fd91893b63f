import { keyPart } from '../storage/redis-key.ts';
import type { Counts } from './request-limits.ts';

/** How often texts have come, to all instances that share their counts. Throws what the counts throw. */
export interface Arrivals {
  /** Counts a text that has come; returns how often it has by now. No two callers are told the same number. */
  count(text: string): Promise<number>;
  /** How often a text has come. */
  of(text: string): Promise<number>;
}

/** Counts texts under `name`; a text is forgotten `windowMs` after it first came, or a little later. */
export function arrivalsIn(counts: Counts, name: string, windowMs: number): Arrivals {
  const store = counts(name);
  store.init?.({ windowMs } as Parameters<NonNullable<typeof store.init>>[0]);
  return {
    count: async (text) => (await store.increment(keyPart(text))).totalHits,
    // Redis's store has no number for what never came.
    of: async (text) => (await store.get?.(keyPart(text)))?.totalHits || 0,
  };
}
