import { describe, expect, jest, test } from '@jest/globals';
import { memoryBudgets } from '../../src/pace/memory-budgets.ts';
import { advanceClocks } from '../harness/clock/advance-clocks.ts';

/** A request of a new holder. */
let holders = 0;
const request = (maxWaitMs: number, endpoint = 'acme/helper') => ({
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

/** The first time from `at` on, in whole ms, at which one more start fits every window; tries all times. */
function naiveSlot(starts: number[], at: number): number {
  const last = Math.max(at, ...starts);
  for (
    let slot = starts.length > 0 ? Math.max(at, starts.at(-1) as number) : at;
    slot <= last + WINDOW;
    slot += 1
  ) {
    // No other window has this slot in it.
    const all = [...starts.filter((start) => start > slot - WINDOW), slot];
    if (all.every((start) => startsFrom(all, start) <= LIMIT)) return slot;
  }
  throw new Error('there is always a slot a window later');
}

/** Arrival times in whole ms, some close together and some far apart. */
function arrivals(random: () => number, count: number): number[] {
  let at = 0;
  return Array.from({ length: count }, () => {
    at += random() < 0.6 ? Math.floor(random() * 20) : Math.floor(random() * 700);
    return at;
  });
}

describe('a sliding window', () => {
  test.each([0, 300, 2000])(
    'with a longest wait of %i ms grants the same slots as a naive reference, and never too many',
    async (maxWaitMs) => {
      for (let seed = 1; seed <= 20; seed += 1) {
        let now = 0;
        const budgets = memoryBudgets({ limit: LIMIT, windowMs: WINDOW }, () => now);
        const starts: number[] = [];
        let refused = 0;
        const answers = [];
        const right = [];
        for (const at of arrivals(randomNumbers(seed), 80)) {
          now = at;
          const expected = naiveSlot(starts, at);
          const { state, waitMs } = await budgets.reserve(request(maxWaitMs));
          const granted = state === 'granted';
          answers.push([at, granted, at + waitMs]);
          right.push([at, expected - at <= maxWaitMs, expected]);
          if (granted) starts.push(at + waitMs);
          else refused += 1;
        }
        // Comparing the texts first is much faster than `expect` for every seed.
        if (JSON.stringify(answers) !== JSON.stringify(right))
          expect({ seed, answers }).toEqual({ seed, answers: right });
        expect(Math.max(...starts.map((start) => startsFrom(starts, start)))).toBeLessThanOrEqual(LIMIT);
        expect(refused).toBeGreaterThan(0);
      }
    },
  );

  test('grants one at 0, four at 0.95 s and only one more at 1.01 s', async () => {
    let now = 0;
    const budgets = memoryBudgets({ limit: LIMIT, windowMs: WINDOW }, () => now);
    const grant = async (at: number) => {
      now = at;
      return (await budgets.reserve(request(0))).state === 'granted';
    };
    const granted: boolean[] = [];
    for (const at of [0, 950, 950, 950, 950, 1010, 1010, 1010, 1949, 1950]) granted.push(await grant(at));
    expect(granted).toEqual([true, true, true, true, true, true, false, false, false, true]);
  });

  test('is not moved by refusals', async () => {
    let now = 0;
    const budgets = memoryBudgets({ limit: 1, windowMs: WINDOW }, () => now);
    await budgets.reserve(request(0));
    for (now = 1; now < WINDOW; now += 1) {
      expect(await budgets.reserve(request(0))).toMatchObject({ state: 'refused', waitMs: WINDOW - now });
    }
    now = WINDOW;
    expect(await budgets.reserve(request(0))).toMatchObject({ state: 'granted', waitMs: 0 });
  });

  test('tells how many slots are left and when all are free again', async () => {
    let now = 0;
    const budgets = memoryBudgets({ limit: 2, windowMs: WINDOW }, () => now);
    const told = [];
    for (const at of [0, 400, 500, 1000, 2500, 3500]) {
      now = at;
      const { remaining, resetMs } = await budgets.reserve(request(0));
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

  test('never tells a negative number of slots', async () => {
    const budgets = memoryBudgets({ limit: 1, windowMs: WINDOW }, () => 0);
    for (const waitMs of [0, 1000, 2000]) {
      expect(await budgets.reserve(request(5000))).toMatchObject({
        state: 'granted',
        waitMs,
        remaining: 0,
        resetMs: waitMs + WINDOW,
      });
    }
  });

  test('is separate for each endpoint', async () => {
    const budgets = memoryBudgets({ limit: 1, windowMs: WINDOW }, () => 0);
    const granted = [];
    for (const endpoint of ['a/x', 'a/y', 'b/x', 'a/x'])
      granted.push((await budgets.reserve(request(0, endpoint))).state === 'granted');
    expect(granted).toEqual([true, true, true, false]);
  });

  test('is forgotten once its endpoint was idle for a window, and not before', async () => {
    const forgotten = jest.spyOn(Map.prototype, 'delete');
    let now = 0;
    const budgets = memoryBudgets({ limit: 1, windowMs: WINDOW }, () => now);
    for (let n = 0; n < 1000; n += 1) {
      now = n < 600 ? 0 : 1;
      await budgets.reserve(request(0, `acme/bot-${n}`));
    }
    now = WINDOW;
    await budgets.reserve(request(0, 'acme/new'));
    const names = forgotten.mock.calls.map(([name]) => name);
    forgotten.mockRestore();
    expect(names).toEqual(Array.from({ length: 600 }, (_, n) => `acme/bot-${n}`));
    expect(await budgets.reserve(request(0, 'acme/bot-999'))).toMatchObject({ state: 'refused', waitMs: 1 });
  });

  test('is not forgotten while its endpoint is paused', async () => {
    let now = 0;
    const budgets = memoryBudgets({ limit: 1, windowMs: WINDOW }, () => now);
    for (let n = 0; n < 1000; n += 1) {
      const { ticket } = await budgets.reserve(request(0, `acme/bot-${n}`));
      if (n > 0) continue;
      await budgets.pause('acme/bot-0', 5 * WINDOW, ticket);
      // The refused message is cancelled: this endpoint has nothing but its pause.
      await budgets.cancel('acme/bot-0', ticket);
    }
    now = 2 * WINDOW;
    await budgets.reserve(request(0, 'acme/new'));
    expect(await budgets.reserve(request(0, 'acme/bot-0'))).toMatchObject({
      state: 'refused',
      waitMs: 3 * WINDOW,
    });
  });

  test('is searched for idle endpoints once per window, whatever the number of new endpoints', async () => {
    let now = 0;
    const budgets = memoryBudgets({ limit: 1, windowMs: WINDOW }, () => now);
    for (let n = 0; n < 1000; n += 1) await budgets.reserve(request(0, `acme/bot-${n}`));
    const looks = jest.spyOn(Map.prototype, Symbol.iterator);
    for (let n = 0; n < 50; n += 1) await budgets.reserve(request(0, `acme/new-${n}`));
    now = WINDOW;
    for (let n = 0; n < 50; n += 1) await budgets.reserve(request(0, `acme/newer-${n}`));
    const looked = looks.mock.calls.length;
    looks.mockRestore();
    expect(looked).toBe(2);
  });

  test('runs on the monotonic clock of the process', async () => {
    const budgets = memoryBudgets({ limit: 1, windowMs: 600_000 });
    await budgets.reserve(request(0));
    advanceClocks({ date: 700_000 });
    expect(await budgets.reserve(request(0))).toMatchObject({ state: 'refused' });
    advanceClocks({ monotonic: 700_000 });
    expect(await budgets.reserve(request(0))).toMatchObject({ state: 'granted' });
    jest.restoreAllMocks();
  });
});
