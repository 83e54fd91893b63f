import { setTimeout as sleep } from 'node:timers/promises';
import { beforeEach, describe, expect, test } from '@jest/globals';
import type { EndpointBudgets, Reservation } from '../../src/guard/budgets.ts';
import { memoryBudgets } from '../../src/guard/memory-budgets.ts';
import { type SlotWaits, slotWaits } from '../../src/guard/slot-waits.ts';

const RATE = { limit: 5, windowMs: 1000, maxWaitMs: 1000 };
const WISH = { endpoint: 'acme/helper', holder: 'h' };
const ALWAYS = new AbortController().signal;

const asked: number[] = [];
/** When a slot was asked for last. */
let askedAt = 0;
const started: string[] = [];
const sent: string[] = [];
const cancelled: string[] = [];
let answers: Partial<Reservation>[];
/** What `start` answers, one after the other; then 0. */
let waits: number[];

/** Budgets that answer what a test wants. */
const budgets: EndpointBudgets = {
  async reserve({ maxWaitMs }) {
    asked.push(maxWaitMs);
    askedAt = performance.now();
    const plain = { state: 'granted', waitMs: 0, ticket: 't', remaining: 0, resetMs: 1000 } as const;
    return { ...plain, ...answers.shift() };
  },
  async start(_endpoint, ticket) {
    started.push(ticket);
    return waits.shift() ?? 0;
  },
  async cancel(_endpoint, ticket) {
    cancelled.push(ticket);
  },
  async sent(_endpoint, ticket) {
    sent.push(ticket);
  },
  async penalize() {},
};

let slots: SlotWaits;
beforeEach(() => {
  for (const calls of [asked, started, sent, cancelled]) calls.length = 0;
  answers = [];
  waits = [];
  slots = slotWaits(budgets, RATE);
});

describe('a message that wants a slot', () => {
  test('has waited already what it stood in line behind the slots of its session', async () => {
    answers = [{ state: 'share_taken', waitMs: 200 }, {}];
    const { slot } = await slots.take(WISH, ALWAYS);
    expect(asked[0]).toBeGreaterThan(990);
    expect(asked[1]).toBeLessThanOrEqual(801);
    expect(slot?.waitLeftMs).toBeLessThanOrEqual(801);
  });

  test('has waited already what it waited for its slot', async () => {
    answers = [{ waitMs: 200 }];
    const { slot } = await slots.take(WISH, ALWAYS);
    expect(slot?.waitLeftMs).toBeLessThanOrEqual(801);
    expect(started).toEqual(['t']);
    expect(slot?.startedAt).toBeGreaterThan(askedAt + 190);
  });

  test('is refused at once if the next slot of its session comes too late', async () => {
    answers = [{ state: 'share_taken', waitMs: 60_000 }];
    expect(await slots.take(WISH, ALWAYS)).toMatchObject({ reservation: { waitMs: 60_000 } });
  });

  test('is told how long it would still take if its slot was moved too far away, and gives it back', async () => {
    answers = [{ waitMs: 10 }];
    waits = [60_000];
    const turn = await slots.take(WISH, ALWAYS);
    expect(turn.slot).toBeUndefined();
    expect(turn.reservation.waitMs).toBe(60_000);
    expect(cancelled).toEqual(['t']);
  });

  test('gives back a slot that it gets when it is gone', async () => {
    const gone = new AbortController();
    const turn = slots.take(WISH, gone.signal);
    gone.abort('gone');
    await expect(turn).rejects.toBe('gone');
    expect(cancelled).toEqual(['t']);
  });

  test('is told when all is free again from the time when its slot has come', async () => {
    const [limit, windowMs] = [1, 500];
    const real = slotWaits(memoryBudgets({ limit, windowMs }), { limit, windowMs, maxWaitMs: 5000 });
    await real.take(WISH, ALWAYS);
    const { resetMs } = (await real.take(WISH, ALWAYS)).reservation;
    expect(resetMs).toBeGreaterThan(250);
    expect(resetMs).toBeLessThanOrEqual(500);
  });

  test('is asked for when its slot has come, and not a little before', async () => {
    const early: number[] = [];
    for (let n = 0; n < 60; n++) {
      answers = [{ waitMs: 3.9 }];
      const { slot } = await slots.take(WISH, ALWAYS);
      early.push(3.9 - ((slot?.startedAt ?? 0) - askedAt));
    }
    expect(Math.max(...early)).toBeLessThan(0);
    expect(started).toHaveLength(60);
  });
});

describe('a message that has its connection', () => {
  const slot = () => ({ ...WISH, ticket: 't', startedAt: performance.now(), waitLeftMs: 1000 });

  test('leaves without another question if it was not held up', async () => {
    expect(await slots.leave({ ...slot(), startedAt: performance.now() + 1000 }, ALWAYS)).toBe(true);
    expect(started).toEqual([]);
  });

  test('is counted anew if it was held up, once', async () => {
    const late = slot();
    await sleep(50);
    expect(await slots.leave(late, ALWAYS)).toBe(true);
    expect(started).toEqual(['t']);
    expect(late.startedAt).toBeGreaterThan(performance.now() - 40);
    expect(cancelled).toEqual([]);
  });

  test('waits if there is no room now, and gives its slot back if that is too long', async () => {
    waits = [100, 0];
    const before = performance.now();
    expect(await slots.leave({ ...slot(), startedAt: 0 }, ALWAYS)).toBe(true);
    expect(performance.now() - before).toBeGreaterThan(95);
    waits = [60_000];
    expect(await slots.leave({ ...slot(), startedAt: 0 }, ALWAYS)).toBe(false);
    expect(cancelled).toEqual(['t']);
  });

  test('is counted from when it has left if it was held up on the last step', async () => {
    slots.sent({ ...slot(), startedAt: performance.now() + 1000 });
    expect(sent).toEqual([]);
    slots.sent({ ...slot(), startedAt: performance.now() - 50 });
    expect(sent).toEqual(['t']);
  });

  test('gives its slot back if it is gone meanwhile', async () => {
    waits = [60_000];
    const gone = new AbortController();
    const leaving = slots.leave({ ...slot(), startedAt: 0, waitLeftMs: 100_000 }, gone.signal);
    gone.abort('gone');
    await expect(leaving).rejects.toBe('gone');
    expect(cancelled).toEqual(['t']);
  });
});
