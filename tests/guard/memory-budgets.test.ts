import { describe, expect, jest, test } from '@jest/globals';
import { memoryBudgets } from '../../src/pace/memory-budgets.ts';

/** A wish of a holder that nobody else is. */
let holders = 0;
const wish = (maxWaitMs: number, endpoint = 'acme/helper') => ({
  endpoint,
  holders: [`holder-${++holders}`],
  maxWaitMs,
});

const LIMIT = 5;
const WINDOW = 1000;

/** Numbers from 0 to 1 that look random and are the same in every run (mulberry32). */
function randomNumbers(seed: number): () => number {
  let state = seed;
  return () => {
    state = (state + 0x6d2b79f5) | 0;
    let t = Math.imul(state ^ (state >>> 15), 1 | state);
    t = (t + Math.imul(t ^ (t >>> 7), 61 | t)) ^ t;
    return ((t ^ (t >>> 14)) >>> 0) / 2 ** 32;
  };
}

/** How many of `starts` lie in the half-open window [from, from + WINDOW). */
const startsFrom = (starts: number[], from: number) =>
  starts.filter((s) => s >= from && s < from + WINDOW).length;

/** The first moment from `at` on, in whole ms, at which one more start breaks no window: by trying them all. */
function naiveSlot(starts: number[], at: number): number {
  const last = Math.max(at, ...starts);
  for (
    let slot = starts.length > 0 ? Math.max(at, starts.at(-1) as number) : at;
    slot <= last + WINDOW;
    slot += 1
  ) {
    const all = [...starts, slot];
    if (all.every((start) => startsFrom(all, start) <= LIMIT)) return slot;
  }
  throw new Error('there is always a slot a window later');
}

/** Arrivals in whole ms, in bursts and at leisure. */
function arrivals(random: () => number, count: number): number[] {
  let at = 0;
  return Array.from({ length: count }, () => {
    at += random() < 0.6 ? Math.floor(random() * 20) : Math.floor(random() * 700);
    return at;
  });
}

describe('a sliding window', () => {
  test.each([0, 300, 2000])(
    'with a longest wait of %i ms grants what a naive reference grants, when it does, and never too much (L1, L3)',
    async (maxWaitMs) => {
      for (let seed = 1; seed <= 20; seed += 1) {
        let now = 0;
        const budgets = memoryBudgets({ limit: LIMIT, windowMs: WINDOW }, () => now);
        const starts: number[] = [];
        let refused = 0;
        for (const at of arrivals(randomNumbers(seed), 80)) {
          now = at;
          const expected = naiveSlot(starts, at);
          const { state, waitMs } = await budgets.reserve(wish(maxWaitMs));
          const granted = state === 'granted';
          expect([seed, at, granted, at + waitMs]).toEqual([seed, at, expected - at <= maxWaitMs, expected]);
          if (granted) starts.push(at + waitMs);
          else refused += 1;
        }
        for (const start of starts) expect(startsFrom(starts, start)).toBeLessThanOrEqual(LIMIT);
        expect(refused).toBeGreaterThan(0);
      }
    },
  );

  test('grants one at 0, four at 0.95 s and only one more at 1.01 s (L1)', async () => {
    let now = 0;
    const budgets = memoryBudgets({ limit: LIMIT, windowMs: WINDOW }, () => now);
    const grant = async (at: number) => {
      now = at;
      return (await budgets.reserve(wish(0))).state === 'granted';
    };
    const granted: boolean[] = [];
    for (const at of [0, 950, 950, 950, 950, 1010, 1010, 1010, 1949, 1950]) granted.push(await grant(at));
    expect(granted).toEqual([true, true, true, true, true, true, false, false, false, true]);
  });

  test('is not pushed by refusals, however many (L3)', async () => {
    let now = 0;
    const budgets = memoryBudgets({ limit: 1, windowMs: WINDOW }, () => now);
    await budgets.reserve(wish(0));
    for (now = 1; now < WINDOW; now += 1) {
      expect(await budgets.reserve(wish(0))).toMatchObject({ state: 'refused', waitMs: WINDOW - now });
    }
    now = WINDOW;
    expect(await budgets.reserve(wish(0))).toMatchObject({ state: 'granted', waitMs: 0 });
  });

  test('tells how many slots are left and when all are free again', async () => {
    let now = 0;
    const budgets = memoryBudgets({ limit: 2, windowMs: WINDOW }, () => now);
    const told = [];
    for (const at of [0, 400, 500, 1000, 2500, 3500]) {
      now = at;
      const { remaining, resetMs } = await budgets.reserve(wish(0));
      told.push([at, remaining, resetMs]);
    }
    expect(told).toEqual([
      [0, 1, 1000],
      [400, 0, 1000],
      [500, 0, 900],
      [1000, 0, 1000],
      [2500, 1, 1000],
      [3500, 1, 1000],
    ]);
  });

  test('never tells of fewer than no slots, while some wait', async () => {
    const budgets = memoryBudgets({ limit: 1, windowMs: WINDOW }, () => 0);
    for (const waitMs of [0, 1000, 2000]) {
      expect(await budgets.reserve(wish(5000))).toMatchObject({
        state: 'granted',
        waitMs,
        remaining: 0,
        resetMs: waitMs + WINDOW,
      });
    }
  });

  test('of one endpoint is not that of another (L4)', async () => {
    const budgets = memoryBudgets({ limit: 1, windowMs: WINDOW }, () => 0);
    const granted = [];
    for (const endpoint of ['a/x', 'a/y', 'b/x', 'a/x'])
      granted.push((await budgets.reserve(wish(0, endpoint))).state === 'granted');
    expect(granted).toEqual([true, true, true, false]);
  });

  test('is forgotten once its endpoint has been idle for it, and not before', async () => {
    const forgotten = jest.spyOn(Map.prototype, 'delete');
    let now = 0;
    const budgets = memoryBudgets({ limit: 1, windowMs: WINDOW }, () => now);
    for (let n = 0; n < 1000; n += 1) {
      now = n < 600 ? 0 : 1;
      await budgets.reserve(wish(0, `acme/bot-${n}`));
    }
    now = WINDOW;
    await budgets.reserve(wish(0, 'acme/new'));
    const names = forgotten.mock.calls.map(([name]) => name);
    forgotten.mockRestore();
    expect(names).toEqual(Array.from({ length: 600 }, (_, n) => `acme/bot-${n}`));
    expect(await budgets.reserve(wish(0, 'acme/bot-999'))).toMatchObject({ state: 'refused', waitMs: 1 });
  });

  test('is not forgotten while its endpoint is paused', async () => {
    let now = 0;
    const budgets = memoryBudgets({ limit: 1, windowMs: WINDOW }, () => now);
    for (let n = 0; n < 1000; n += 1) {
      const { ticket } = await budgets.reserve(wish(0, `acme/bot-${n}`));
      if (n > 0) continue;
      await budgets.penalize('acme/bot-0', ticket, { believedMs: 5 * WINDOW, askedMs: 5 * WINDOW });
      // Whoever was refused has left: nothing but the pause is known of this one.
      await budgets.cancel('acme/bot-0', ticket);
    }
    now = 2 * WINDOW;
    await budgets.reserve(wish(0, 'acme/new'));
    expect(await budgets.reserve(wish(0, 'acme/bot-0'))).toMatchObject({
      state: 'refused',
      waitMs: 3 * WINDOW,
    });
  });

  test('is looked through for idle ones once per window, however many new endpoints come', async () => {
    let now = 0;
    const budgets = memoryBudgets({ limit: 1, windowMs: WINDOW }, () => now);
    for (let n = 0; n < 1000; n += 1) await budgets.reserve(wish(0, `acme/bot-${n}`));
    const looks = jest.spyOn(Map.prototype, Symbol.iterator);
    for (let n = 0; n < 50; n += 1) await budgets.reserve(wish(0, `acme/new-${n}`));
    now = WINDOW;
    for (let n = 0; n < 50; n += 1) await budgets.reserve(wish(0, `acme/newer-${n}`));
    const looked = looks.mock.calls.length;
    looks.mockRestore();
    expect(looked).toBe(2);
  });

  test('drops a whole window that ran out sooner than it was filled', async () => {
    let now = 0;
    const budgets = memoryBudgets({ limit: 1_000_000, windowMs: WINDOW }, () => now);
    const startedAt = performance.now();
    for (let n = 0; n < 100_000; n += 1) await budgets.reserve(wish(0));
    const filledAt = performance.now();
    now = 2 * WINDOW;
    expect(await budgets.reserve(wish(0))).toMatchObject({ state: 'granted', remaining: 999_999 });
    expect(performance.now() - filledAt).toBeLessThan(filledAt - startedAt);
  });

  test('runs on the monotonic clock of the process', async () => {
    const budgets = memoryBudgets({ limit: 1, windowMs: 20 });
    const wallClock = jest.spyOn(Date, 'now').mockReturnValue(0);
    await budgets.reserve(wish(0));
    const { state, waitMs } = await budgets.reserve(wish(0));
    expect(state).toBe('refused');
    await new Promise((resolve) => setTimeout(resolve, waitMs + 2));
    expect((await budgets.reserve(wish(0))).state === 'granted').toBe(true);
    wallClock.mockRestore();
  });
});
