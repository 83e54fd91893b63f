import { beforeEach, describe, expect, test } from '@jest/globals';
import type { EndpointBudgets, Reservation } from '../../src/pace/budgets.ts';
import { type SlotWaits, slotWaits } from '../../src/pace/slot-waits.ts';

const RATE = { limit: 5, windowMs: 1000, maxWaitMs: 60_000 };
const REQUEST = { endpoint: 'acme/helper', holders: ['h'] };
const ALWAYS = new AbortController().signal;

const asked: number[] = [];
/** When a slot was last requested. */
let askedAt = 0;
const started: string[] = [];
const sent: string[] = [];
const cancelled: string[] = [];
const pauses: [pauseMs: number, first: string | undefined][] = [];
let answers: Partial<Reservation>[];
/** The next answers of `start`; after them, 0. */
let waits: number[];

/** Budgets that give the answers that a test sets. */
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
  async pause(_endpoint, pauseMs, first) {
    pauses.push([pauseMs, first]);
  },
};

let slots: SlotWaits;
beforeEach(() => {
  for (const calls of [asked, started, sent, cancelled, pauses]) calls.length = 0;
  answers = [];
  waits = [];
  slots = slotWaits(budgets, RATE);
});

describe('a message that waits for a slot', () => {
  test('may wait less after a wait for the earlier slots of its holder', async () => {
    answers = [{ state: 'share_taken', waitMs: 20 }, {}];
    const { slot } = await slots.take(REQUEST, ALWAYS);
    const [before = 0, after = 0] = asked;
    expect(after).toBeLessThanOrEqual(before - 20);
    expect(slot?.waitLeftMs).toBeLessThanOrEqual(after);
  });

  test('may wait less later after a wait for its slot', async () => {
    answers = [{ waitMs: 20 }];
    const { slot } = await slots.take(REQUEST, ALWAYS);
    expect(slot?.waitLeftMs).toBeLessThanOrEqual(RATE.maxWaitMs - 20);
    expect(started).toEqual(['t']);
    expect(slot?.startedAt).toBeGreaterThanOrEqual(askedAt + 20);
  });

  test('does not keep others of its holder waiting if the budget throws', async () => {
    let isBroken = true;
    const reserve: EndpointBudgets['reserve'] = (request) => {
      if (!isBroken) return budgets.reserve(request);
      isBroken = false;
      throw new Error('broken');
    };
    slots = slotWaits({ ...budgets, reserve }, RATE);
    await expect(slots.take(REQUEST, ALWAYS)).rejects.toThrow('broken');
    expect(await slots.take(REQUEST, ALWAYS)).toMatchObject({ slot: { ticket: 't' } });
  });

  test('is refused at once if the next slot of its holder comes too late', async () => {
    answers = [{ state: 'share_taken', waitMs: 600_000 }];
    expect(await slots.take(REQUEST, ALWAYS)).toMatchObject({ reservation: { waitMs: 600_000 } });
  });

  test('gives its slot back if it was moved too far away, and gets the necessary wait', async () => {
    answers = [{ waitMs: 10 }];
    waits = [600_000];
    const result = await slots.take(REQUEST, ALWAYS);
    expect(result.slot).toBeUndefined();
    expect(result.reservation.waitMs).toBe(600_000);
    expect(cancelled).toEqual(['t']);
  });

  test('gives back a slot that arrives after it was aborted', async () => {
    const stop = new AbortController();
    const result = slots.take(REQUEST, stop.signal);
    stop.abort('stopped');
    await expect(result).rejects.toBe('stopped');
    expect(cancelled).toEqual(['t']);
  });

  test('starts not even a little before the time of its slot', async () => {
    const early: number[] = [];
    for (let n = 0; n < 20; n++) {
      answers = [{ waitMs: 3.9 }];
      const { slot } = await slots.take(REQUEST, ALWAYS);
      early.push(3.9 - ((slot?.startedAt ?? 0) - askedAt));
    }
    expect(Math.max(...early)).toBeLessThan(0);
    expect(started).toHaveLength(20);
  });
});

describe('a message that is about to be sent', () => {
  const startedIn = (ms: number) => ({
    endpoint: REQUEST.endpoint,
    ticket: 't',
    startedAt: performance.now() + ms,
    waitLeftMs: 60_000,
  });

  test('is sent without another call of the budget if it was not delayed', async () => {
    expect(await slots.renew(startedIn(600_000), ALWAYS)).toBe(0);
    expect(started).toEqual([]);
  });

  test('is counted again, once, if it was delayed', async () => {
    const late = startedIn(-50);
    const before = performance.now();
    expect(await slots.renew(late, ALWAYS)).toBe(0);
    expect(started).toEqual(['t']);
    expect(late.startedAt).toBeGreaterThanOrEqual(before);
    expect(cancelled).toEqual([]);
  });

  test('waits if there is no room now, and gives its slot back if the wait is too long', async () => {
    waits = [20, 0];
    const before = performance.now();
    expect(await slots.renew(startedIn(-50), ALWAYS)).toBe(0);
    expect(performance.now() - before).toBeGreaterThanOrEqual(20);
    expect(started).toEqual(['t', 't']);
    waits = [600_000];
    expect(await slots.renew(startedIn(-50), ALWAYS)).toBe(600_000);
    expect(cancelled).toEqual(['t']);
  });

  test('is counted from when it was sent if it was delayed after the last check', async () => {
    slots.sent(startedIn(600_000));
    expect(sent).toEqual([]);
    slots.sent(startedIn(-50));
    expect(sent).toEqual(['t']);
  });

  test('gives its slot back if it is aborted during the wait', async () => {
    waits = [60_000];
    const stop = new AbortController();
    const renewed = slots.renew(startedIn(-50), stop.signal);
    stop.abort('stopped');
    await expect(renewed).rejects.toBe('stopped');
    expect(cancelled).toEqual(['t']);
  });
});

describe('a message that the service has refused', () => {
  const slot = () => ({
    endpoint: REQUEST.endpoint,
    ticket: 't',
    startedAt: 0,
    waitLeftMs: 1000,
  });

  test('pauses its bot for as long as the service has asked, but at most a minute', async () => {
    for (const askedMs of [2000, 60_000, 61_000, 86_400_000])
      await slots.takeAfterRefusal(slot(), askedMs, ALWAYS);
    expect(pauses).toEqual([
      [2000, 't'],
      [60_000, 't'],
      [60_000, 't'],
      [60_000, 't'],
    ]);
  });

  test('gets the length of the pause, also if an earlier pause is longer', async () => {
    waits = [45_000];
    expect(await slots.takeAfterRefusal(slot(), 2000, ALWAYS)).toBe(45_000);
    expect(cancelled).toEqual(['t']);
  });
});

describe('a slot whose budget fails', () => {
  const slot = () => ({
    endpoint: REQUEST.endpoint,
    ticket: 't',
    startedAt: 0,
    waitLeftMs: 1000,
  });
  const away = new Error('away');
  const failing = slotWaits(
    { ...budgets, start: () => Promise.reject(away), pause: () => Promise.reject(away) },
    RATE,
  );
  test.each([
    ['right before the message is sent', 't', () => failing.renew(slot(), ALWAYS)],
    ['after the service has refused the message', 't', () => failing.takeAfterRefusal(slot(), 1000, ALWAYS)],
    ['after the key was refused', 't+', () => failing.takeExtra(slot(), ALWAYS)],
  ])('%s is given back, since the budget may have reserved it', async (_when, ticket, ask) => {
    await expect(ask()).rejects.toBe(away);
    expect(cancelled).toEqual([ticket]);
  });
});

test('a message of a guest waits no longer than allowed behind another of its address', async () => {
  const guest = (name: string) => ({ ...REQUEST, holders: [name, 'address'] });
  const answer = Promise.withResolvers<Reservation>();
  const hasty = slotWaits({ ...budgets, reserve: () => answer.promise }, { ...RATE, maxWaitMs: 20 });
  const first = hasty.take(guest('one'), ALWAYS);
  expect((await hasty.take(guest('two'), ALWAYS)).slot).toBeUndefined();
  answer.resolve(await budgets.reserve({ ...REQUEST, maxWaitMs: 0 }));
  expect((await first).slot).toBeDefined();
});
