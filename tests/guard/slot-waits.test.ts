import { setTimeout as sleep } from 'node:timers/promises';
import { beforeEach, describe, expect, test } from '@jest/globals';
import type { EndpointBudgets, Pause, Reservation, Start } from '../../src/pace/budgets.ts';
import { memoryBudgets } from '../../src/pace/memory-budgets.ts';
import { type SlotWaits, slotWaits } from '../../src/pace/slot-waits.ts';

const RATE = { limit: 5, windowMs: 1000, maxWaitMs: 1000 };
const WISH = { endpoint: 'acme/helper', holders: ['h'] };
const ALWAYS = new AbortController().signal;

const asked: number[] = [];
/** When a slot was asked for last. */
let askedAt = 0;
const started: string[] = [];
const sent: string[] = [];
const cancelled: string[] = [];
const pauses: Pause[] = [];
const judged: [ticket: string, accepted: boolean][] = [];
let answers: Partial<Reservation>[];
/** What `start` answers, one after the other; then 0. */
let waits: (number | Partial<Start>)[];

/** Budgets that answer what a test wants. */
const budgets: EndpointBudgets = {
  async reserve({ maxWaitMs }) {
    asked.push(maxWaitMs);
    askedAt = performance.now();
    const plain = { state: 'granted', waitMs: 0, ticket: 't', remaining: 0, resetMs: 1000 } as const;
    return { ...plain, judgedMs: 0, onTrial: false, ...answers.shift() };
  },
  async start(_endpoint, ticket) {
    started.push(ticket);
    const next = waits.shift() ?? 0;
    return {
      waitMs: 0,
      judgedMs: 0,
      onTrial: false,
      ...(typeof next === 'number' ? { waitMs: next } : next),
    };
  },
  async cancel(_endpoint, ticket) {
    cancelled.push(ticket);
  },
  async sent(_endpoint, ticket) {
    sent.push(ticket);
  },
  async penalize(_endpoint, _ticket, pause) {
    pauses.push(pause);
  },
  async judged(_endpoint, ticket, accepted) {
    judged.push([ticket, accepted]);
  },
};

let slots: SlotWaits;
beforeEach(() => {
  for (const calls of [asked, started, sent, cancelled, pauses, judged]) calls.length = 0;
  answers = [];
  waits = [];
  slots = slotWaits(budgets, RATE);
});

describe('a message that wants a slot', () => {
  test('has waited already what it stood in line behind the slots of its holder', async () => {
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

  test('is refused at once if the next slot of its holder comes too late', async () => {
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
  const slot = () => ({
    endpoint: WISH.endpoint,
    ticket: 't',
    startedAt: performance.now(),
    waitLeftMs: 1000,
    onTrial: false,
  });

  test('leaves without another question if it was not held up', async () => {
    expect(await slots.leave({ ...slot(), startedAt: performance.now() + 1000 }, ALWAYS)).toBe(0);
    expect(started).toEqual([]);
  });

  test('is counted anew if it was held up, once', async () => {
    const late = slot();
    await sleep(50);
    expect(await slots.leave(late, ALWAYS)).toBe(0);
    expect(started).toEqual(['t']);
    expect(late.startedAt).toBeGreaterThan(performance.now() - 40);
    expect(cancelled).toEqual([]);
  });

  test('waits if there is no room now, and gives its slot back if that is too long', async () => {
    waits = [100, 0];
    const before = performance.now();
    expect(await slots.leave({ ...slot(), startedAt: 0 }, ALWAYS)).toBe(0);
    expect(performance.now() - before).toBeGreaterThan(95);
    waits = [60_000];
    expect(await slots.leave({ ...slot(), startedAt: 0 }, ALWAYS)).toBe(60_000);
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

describe('a message that the service has refused', () => {
  const slot = () => ({
    endpoint: WISH.endpoint,
    ticket: 't',
    startedAt: 0,
    waitLeftMs: 1000,
    onTrial: true,
  });

  test('pauses its bot for as long as the service has asked, but for a minute at most', async () => {
    for (const askedMs of [2000, 60_000, 61_000, 86_400_000]) await slots.takeAgain(slot(), askedMs, ALWAYS);
    expect(pauses).toEqual([
      { believedMs: 2000, askedMs: 2000 },
      { believedMs: 60_000, askedMs: 60_000 },
      { believedMs: 60_000, askedMs: 61_000 },
      { believedMs: 60_000, askedMs: 86_400_000 },
    ]);
  });

  test('is told how long the pause is, also where another message was told of a longer one', async () => {
    waits = [45_000];
    expect(await slots.takeAgain(slot(), 2000, ALWAYS)).toBe(45_000);
    expect(cancelled).toEqual(['t']);
  });
});

describe('a slot about which the budget was asked in vain', () => {
  const slot = () => ({
    endpoint: WISH.endpoint,
    ticket: 't',
    startedAt: 0,
    waitLeftMs: 1000,
    onTrial: true,
  });
  const away = new Error('away');
  const failing = slotWaits(
    { ...budgets, start: () => Promise.reject(away), penalize: () => Promise.reject(away) },
    RATE,
  );
  test.each([
    ['before it leaves', 't', () => failing.leave(slot(), ALWAYS)],
    ['when the service has refused it', 't', () => failing.takeAgain(slot(), 1000, ALWAYS)],
    ['when its key was refused', 't+', () => failing.takeOneMore(slot(), ALWAYS)],
  ])(
    '%s is given back: the budget may have heard it, and keep others waiting for it',
    async (_when, ticket, ask) => {
      await expect(ask()).rejects.toBe(away);
      expect(cancelled).toEqual([ticket]);
    },
  );
});

describe('a message on trial', () => {
  test('is judged once', async () => {
    answers = [{ onTrial: true }];
    const { slot } = await slots.take(WISH, ALWAYS);
    if (!slot) throw new Error('there is no slot');
    slots.judged(slot, true);
    slots.judged(slot, false);
    expect(judged).toEqual([['t', true]]);
  });

  test('is the only one that is judged', async () => {
    const { slot } = await slots.take(WISH, ALWAYS);
    if (!slot) throw new Error('there is no slot');
    slots.judged(slot, true);
    expect(judged).toEqual([]);
  });

  test('is on trial also with another key, and when its connection took long', async () => {
    waits = [{ onTrial: true }, { onTrial: true }];
    const { slot } = await slots.take(WISH, ALWAYS);
    if (!slot) throw new Error('there is no slot');
    const more = await slots.takeOneMore(slot, ALWAYS);
    if (typeof more === 'number') throw new Error('there is no slot');
    more.startedAt = 0;
    await slots.leave(more, ALWAYS);
    slots.judged(more, true);
    expect(judged).toEqual([['t+', true]]);
  });

  test('of somebody else is waited for, and asked after again and again; who cannot wait is told when it is over', async () => {
    const other = { waitMs: 250, judgedMs: 50_000 };
    answers = [other];
    waits = Array.from({ length: 20 }, () => other);
    const from = performance.now();
    const { slot, reservation } = await slots.take(WISH, ALWAYS);
    expect([slot, reservation.waitMs]).toEqual([undefined, 50_000]);
    expect(performance.now() - from).toBeGreaterThan(700);
    expect(started.length).toBeGreaterThanOrEqual(3);
    answers = [{ state: 'refused', waitMs: 250, judgedMs: 40_000 }];
    expect((await slots.take(WISH, ALWAYS)).reservation.waitMs).toBe(40_000);
    answers = [{ state: 'share_taken', waitMs: 1200, judgedMs: 30_000 }];
    expect((await slots.take(WISH, ALWAYS)).reservation.waitMs).toBe(30_000);
  });
});

describe('a message of a guest', () => {
  const guest = (name: string) => ({ endpoint: 'acme/helper', holders: [name, 'address'] });
  const real = () =>
    slotWaits(memoryBudgets({ limit: 1, windowMs: 200 }), { limit: 1, windowMs: 200, maxWaitMs: 2000 });

  test('goes in turn with those of other guests from its address, however many one of them sends', async () => {
    const waits = real();
    const order: string[] = [];
    const send = (name: string) =>
      waits.take(guest(name), ALWAYS).then(({ slot }) => void order.push(slot ? name : 'refused'));
    const many = Array.from({ length: 6 }, () => send('greedy'));
    await sleep(20);
    await Promise.all([...many, send('other')]);
    expect(order.filter((name) => name === 'greedy')).toHaveLength(6);
    // The first, two that lie ahead, and the one that is next in line.
    expect(order.indexOf('other')).toBeLessThanOrEqual(4);
  });

  test('waits no longer than it may behind others of its address, who may wait for longer', async () => {
    answers = Array.from({ length: 60 }, () => ({ state: 'share_taken', waitMs: 100 }));
    const from = performance.now();
    const [first, second] = [slots.take(guest('one'), ALWAYS), slots.take(guest('one'), ALWAYS)];
    await sleep(900);
    // Stands in front of the second when the first has left, until 1900 ms.
    const later = slots.take(guest('two'), ALWAYS);
    expect((await second).slot).toBeUndefined();
    expect(performance.now() - from).toBeLessThan(1800);
    await Promise.all([first, later]);
  });
});
