import { beforeEach, describe, expect, test } from '@jest/globals';
import type { EndpointBudgets, Pause, Reservation, StartAnswer } from '../../src/pace/budgets.ts';
import { memoryBudgets } from '../../src/pace/memory-budgets.ts';
import { type SlotWaits, slotWaits } from '../../src/pace/slot-waits.ts';
import { countAwakeMs } from '../support/awake.ts';
import { sleep } from '../support/sleep.ts';
import { whileAwake } from '../support/while-awake.ts';

const RATE = { limit: 5, windowMs: 1000, maxWaitMs: 1000 };
const REQUEST = { endpoint: 'acme/helper', holders: ['h'] };
const ALWAYS = new AbortController().signal;

const asked: number[] = [];
/** When a slot was last requested. */
let askedAt = 0;
const started: string[] = [];
const sent: string[] = [];
const cancelled: string[] = [];
const pauses: Pause[] = [];
const judged: [ticket: string, accepted: boolean][] = [];
let answers: Partial<Reservation>[];
/** The next answers of `start`; after them, 0. */
let waits: (number | Partial<StartAnswer>)[];

/** Budgets that give the answers that a test sets. */
const budgets: EndpointBudgets = {
  async reserve({ maxWaitMs }) {
    asked.push(maxWaitMs);
    askedAt = performance.now();
    const plain = { state: 'granted', waitMs: 0, ticket: 't', remaining: 0, resetMs: 1000 } as const;
    return { ...plain, trialLeftMs: 0, onTrial: false, ...answers.shift() };
  },
  async start(_endpoint, ticket) {
    started.push(ticket);
    const next = waits.shift() ?? 0;
    return {
      waitMs: 0,
      trialLeftMs: 0,
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
async function clear() {
  for (const calls of [asked, started, sent, cancelled, pauses, judged]) calls.length = 0;
  answers = [];
  waits = [];
  slots = slotWaits(budgets, RATE);
}
beforeEach(clear);

describe('a message that waits for a slot', () => {
  test('may wait less after a wait for the earlier slots of its holder', async () => {
    answers = [{ state: 'share_taken', waitMs: 200 }, {}];
    const { slot } = await slots.take(REQUEST, ALWAYS);
    expect(asked[0]).toBeGreaterThan(990);
    expect(asked[1]).toBeLessThanOrEqual(801);
    expect(slot?.waitLeftMs).toBeLessThanOrEqual(801);
  });

  test('may wait less later after a wait for its slot', async () => {
    answers = [{ waitMs: 200 }];
    const { slot } = await slots.take(REQUEST, ALWAYS);
    expect(slot?.waitLeftMs).toBeLessThanOrEqual(801);
    expect(started).toEqual(['t']);
    expect(slot?.startedAt).toBeGreaterThan(askedAt + 190);
  });

  test('does not keep others of its holder waiting if the budget throws', async () => {
    let isBroken = true;
    const reserve: EndpointBudgets['reserve'] = (request) => {
      if (!isBroken) return budgets.reserve(request);
      isBroken = false;
      throw new Error('broken');
    };
    slots = slotWaits({ ...budgets, reserve }, RATE);
    expect(() => slots.take(REQUEST, ALWAYS)).toThrow('broken');
    expect(await slots.take(REQUEST, AbortSignal.timeout(500))).toMatchObject({ slot: { ticket: 't' } });
  });

  test('is refused at once if the next slot of its holder comes too late', async () => {
    answers = [{ state: 'share_taken', waitMs: 60_000 }];
    expect(await slots.take(REQUEST, ALWAYS)).toMatchObject({ reservation: { waitMs: 60_000 } });
  });

  test('gives its slot back if it was moved too far away, and gets the necessary wait', async () => {
    answers = [{ waitMs: 10 }];
    waits = [60_000];
    const result = await slots.take(REQUEST, ALWAYS);
    expect(result.slot).toBeUndefined();
    expect(result.reservation.waitMs).toBe(60_000);
    expect(cancelled).toEqual(['t']);
  });

  test('gives back a slot that arrives after it was aborted', async () => {
    const stop = new AbortController();
    const result = slots.take(REQUEST, stop.signal);
    stop.abort('stopped');
    await expect(result).rejects.toBe('stopped');
    expect(cancelled).toEqual(['t']);
  });

  test(
    'gets the time until all slots are free as from its own start',
    whileAwake(async () => {
      const [limit, windowMs] = [1, 500];
      const real = slotWaits(memoryBudgets({ limit, windowMs }), { limit, windowMs, maxWaitMs: 5000 });
      await real.take(REQUEST, ALWAYS);
      const { resetMs } = (await real.take(REQUEST, ALWAYS)).reservation;
      expect(resetMs).toBeGreaterThan(250);
      expect(resetMs).toBeLessThanOrEqual(500);
    }),
  );

  test('starts not even a little before the time of its slot', async () => {
    const early: number[] = [];
    for (let n = 0; n < 60; n++) {
      answers = [{ waitMs: 3.9 }];
      const { slot } = await slots.take(REQUEST, ALWAYS);
      early.push(3.9 - ((slot?.startedAt ?? 0) - askedAt));
    }
    expect(Math.max(...early)).toBeLessThan(0);
    expect(started).toHaveLength(60);
  });
});

describe('a message that is about to be sent', () => {
  const slot = () => ({
    endpoint: REQUEST.endpoint,
    ticket: 't',
    startedAt: performance.now(),
    waitLeftMs: 1000,
    onTrial: false,
  });

  test('is sent without another call of the budget if it was not delayed', async () => {
    expect(await slots.renew({ ...slot(), startedAt: performance.now() + 1000 }, ALWAYS)).toBe(0);
    expect(started).toEqual([]);
  });

  test('is counted again, once, if it was delayed', async () => {
    const late = slot();
    await sleep(50);
    expect(await slots.renew(late, ALWAYS)).toBe(0);
    expect(started).toEqual(['t']);
    expect(late.startedAt).toBeGreaterThan(performance.now() - 40);
    expect(cancelled).toEqual([]);
  });

  test('waits if there is no room now, and gives its slot back if the wait is too long', async () => {
    waits = [100, 0];
    const before = performance.now();
    expect(await slots.renew({ ...slot(), startedAt: 0 }, ALWAYS)).toBe(0);
    expect(performance.now() - before).toBeGreaterThan(95);
    waits = [60_000];
    expect(await slots.renew({ ...slot(), startedAt: 0 }, ALWAYS)).toBe(60_000);
    expect(cancelled).toEqual(['t']);
  });

  test('is counted from when it was sent if it was delayed after the last check', async () => {
    slots.sent({ ...slot(), startedAt: performance.now() + 1000 });
    expect(sent).toEqual([]);
    slots.sent({ ...slot(), startedAt: performance.now() - 50 });
    expect(sent).toEqual(['t']);
  });

  test('gives its slot back if it is aborted during the wait', async () => {
    waits = [60_000];
    const stop = new AbortController();
    const renewed = slots.renew({ ...slot(), startedAt: 0, waitLeftMs: 100_000 }, stop.signal);
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
    onTrial: true,
  });

  test('pauses its bot for as long as the service has asked, but at most a minute', async () => {
    for (const askedMs of [2000, 60_000, 61_000, 86_400_000])
      await slots.takeAfterRefusal(slot(), askedMs, ALWAYS);
    expect(pauses).toEqual([
      { believedMs: 2000, askedMs: 2000 },
      { believedMs: 60_000, askedMs: 60_000 },
      { believedMs: 60_000, askedMs: 61_000 },
      { believedMs: 60_000, askedMs: 86_400_000 },
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
    onTrial: true,
  });
  const away = new Error('away');
  const failing = slotWaits(
    { ...budgets, start: () => Promise.reject(away), penalize: () => Promise.reject(away) },
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

describe('a message on trial', () => {
  test('is judged once', async () => {
    answers = [{ onTrial: true }];
    const { slot } = await slots.take(REQUEST, ALWAYS);
    if (!slot) throw new Error('there is no slot');
    slots.judged(slot, true);
    slots.judged(slot, false);
    expect(judged).toEqual([['t', true]]);
  });

  test('is the only one that is judged', async () => {
    const { slot } = await slots.take(REQUEST, ALWAYS);
    if (!slot) throw new Error('there is no slot');
    slots.judged(slot, true);
    expect(judged).toEqual([]);
  });

  test('stays on trial with another key, and after a delay', async () => {
    waits = [{ onTrial: true }, { onTrial: true }];
    const { slot } = await slots.take(REQUEST, ALWAYS);
    if (!slot) throw new Error('there is no slot');
    const more = await slots.takeExtra(slot, ALWAYS);
    if (typeof more === 'number') throw new Error('there is no slot');
    more.startedAt = 0;
    await slots.renew(more, ALWAYS);
    slots.judged(more, true);
    expect(judged).toEqual([['t+', true]]);
  });

  test(
    'makes other messages wait and poll; a refused message gets the end of the trial',
    whileAwake(async () => {
      const other = { waitMs: 250, trialLeftMs: 50_000 };
      answers = [other];
      waits = Array.from({ length: 20 }, () => other);
      const from = performance.now();
      const { slot, reservation } = await slots.take(REQUEST, ALWAYS);
      expect([slot, reservation.waitMs]).toEqual([undefined, 50_000]);
      expect(performance.now() - from).toBeGreaterThan(700);
      expect(started.length).toBeGreaterThanOrEqual(3);
      answers = [{ state: 'refused', waitMs: 250, trialLeftMs: 40_000 }];
      expect((await slots.take(REQUEST, ALWAYS)).reservation.waitMs).toBe(40_000);
      answers = [{ state: 'share_taken', waitMs: 1200, trialLeftMs: 30_000 }];
      expect((await slots.take(REQUEST, ALWAYS)).reservation.waitMs).toBe(30_000);
    }, clear),
  );
});

describe('a message of a guest', () => {
  const guest = (name: string) => ({ endpoint: 'acme/helper', holders: [name, 'address'] });
  const real = () =>
    slotWaits(memoryBudgets({ limit: 1, windowMs: 500 }), { limit: 1, windowMs: 500, maxWaitMs: 5000 });

  test(
    'is sent in turn with those of other guests from its address, even if one guest sends many',
    whileAwake(async () => {
      const waits = real();
      const order: string[] = [];
      const send = async (name: string) => {
        const { slot } = await waits.take(guest(name), ALWAYS);
        order.push(slot ? name : 'refused');
      };
      const many = Array.from({ length: 6 }, () => send('greedy'));
      await sleep(20);
      await Promise.all([...many, send('other')]);
      expect(order.filter((name) => name === 'greedy')).toHaveLength(6);
      // The first, two with future slots, and the next in the queue.
      expect(order.indexOf('other')).toBeLessThanOrEqual(4);
    }),
  );

  test('waits no longer than allowed behind others of its address that may wait longer', async () => {
    answers = Array.from({ length: 60 }, () => ({ state: 'share_taken', waitMs: 100 }));
    const awakeMs = countAwakeMs();
    const [first, second] = [slots.take(guest('one'), ALWAYS), slots.take(guest('one'), ALWAYS)];
    await sleep(700);
    // Is before the second in the queue after the first has left, until 1700 ms.
    const later = slots.take(guest('two'), ALWAYS);
    expect((await second).slot).toBeUndefined();
    expect(awakeMs()).toBeLessThan(1600);
    await Promise.all([first, later]);
  });
});
