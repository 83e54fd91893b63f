import { beforeEach, describe, expect, test } from '@jest/globals';
import type { EndpointBudgets, Reservation, SlotRequest } from '../../src/pace/budgets.ts';
import { memoryBudgets } from '../../src/pace/memory-budgets.ts';
import { type SlotWaits, slotWaits } from '../../src/pace/slot-waits.ts';
import { sleep } from '../support/sleep.ts';

const RATE = { limit: 5, windowMs: 600_000, maxWaitMs: 1000 };
const REQUEST = { endpoint: 'acme/helper', holders: ['h'] };
const ALWAYS = new AbortController().signal;
const of = (...holders: string[]) => ({ ...REQUEST, holders });

/** What was asked of the budget, and what it was told: `early` and `reserve` with the holder, others with the ticket. */
let calls: string[];
/** How the next reservations fail or wait; after them, none does. */
let troubles: (() => Promise<void>)[];
/** How long the early ones may wait for their slots, in ms. */
let earlyWaits: number[];
let budgets: EndpointBudgets;
let slots: SlotWaits;
beforeEach(() => {
  calls = [];
  earlyWaits = [];
  troubles = [];
  const real = memoryBudgets(RATE);
  budgets = {
    ...real,
    async reserve(request: SlotRequest): Promise<Reservation> {
      if (request.isEarly) earlyWaits.push(request.maxWaitMs);
      calls.push(`${request.isEarly ? 'early' : 'reserve'} ${request.holders[0]}`);
      const answer = await real.reserve(request);
      await troubles.shift()?.();
      return answer;
    },
    async start(endpoint, ticket) {
      calls.push('start');
      return real.start(endpoint, ticket);
    },
    async cancel(endpoint, ticket) {
      calls.push('cancel');
      return real.cancel(endpoint, ticket);
    },
  };
  slots = slotWaits(budgets, RATE);
});

/** Takes what is free; returns how many slots that were. */
async function left(): Promise<number> {
  for (let n = 0; ; n++) if (!(await slots.take(of(`other-${n}`), ALWAYS)).slot) return n;
}

describe('a slot that is asked for before it is certain that the message is sent', () => {
  test('is asked for in the same tick, and is there when the message is certain', async () => {
    const early = slots.askEarly(REQUEST);
    await new Promise((resolve) => process.nextTick(resolve));
    expect(calls).toEqual(['early h']);
    const taken = early.take(ALWAYS);
    early.drop();
    const { slot, reservation } = await taken;
    expect(slot?.ticket).toBe(reservation.ticket);
    expect(reservation).toMatchObject({ state: 'granted', remaining: 4 });
    early.drop();
    expect(calls).not.toContain('reserve h');
    expect(await left()).toBe(4);
  });

  test.each([
    ['before the budget has answered', 0],
    ['after that', 20],
  ])('is given back if the message is not sent after all, %s', async (_when, ms) => {
    const early = slots.askEarly(REQUEST);
    if (ms > 0) await sleep(ms);
    early.drop();
    early.drop();
    await sleep(1);
    expect(calls).toEqual(['early h', 'cancel']);
    expect(await left()).toBe(5);
  });

  test.each([
    ['while the budget is asked', true],
    ['before it is taken', false],
  ])('is given back if the message is aborted %s', async (_when, isAsked) => {
    const answer = Promise.withResolvers<void>();
    if (isAsked) troubles = [() => answer.promise];
    const stop = new AbortController();
    const early = slots.askEarly(REQUEST);
    await sleep(1);
    if (!isAsked) stop.abort('stopped');
    const taken = early.take(stop.signal);
    taken.catch(() => {});
    stop.abort('stopped');
    answer.resolve();
    await expect(taken).rejects.toBe('stopped');
    expect(calls).toEqual(['early h', 'cancel']);
    expect(await left()).toBe(5);
  });

  test('is asked for again, in the usual way, if it was not granted', async () => {
    for (const name of ['a', 'b', 'c']) await slots.take(of(name), ALWAYS);
    const early = slots.askEarly(REQUEST);
    await sleep(5);
    expect(calls.slice(3)).toEqual(['early h']);
    expect((await early.take(ALWAYS)).slot).toBeDefined();
    expect(calls.slice(3)).toEqual(['early h', 'reserve h']);
    const none = slots.askEarly(REQUEST);
    none.drop();
    await sleep(5);
    expect(calls.slice(5)).toEqual(['early h']);
  });

  test('is one that is free now: who may not be sent holds none for later', async () => {
    slots.askEarly(REQUEST).drop();
    await sleep(1);
    expect(earlyWaits).toEqual([0]);
  });

  test('is refused as usual if none comes in time', async () => {
    expect(await left()).toBe(5);
    const { slot, reservation } = await slots.askEarly(REQUEST).take(ALWAYS);
    expect([slot, reservation.state]).toEqual([undefined, 'refused']);
  });

  test('counts from when the message became certain', async () => {
    const early = slots.askEarly(REQUEST);
    await sleep(30);
    const { slot } = await early.take(ALWAYS);
    expect(calls).toEqual(['early h', 'start']);
    expect(slot?.startedAt).toBeGreaterThan(performance.now() - 25);
    expect(await left()).toBe(4);
  });

  test('fails with the budget only if the message is certain', async () => {
    const fail = () => Promise.reject(new Error('down'));
    troubles = [fail, fail];
    const early = slots.askEarly(REQUEST);
    await sleep(1);
    await expect(early.take(ALWAYS)).rejects.toThrow('down');
    slots.askEarly(REQUEST).drop();
    await sleep(5);
    expect(calls).toEqual(['early h', 'early h']);
  });

  test('waits in the queue of its user, who has one at a time, and whoever is not sent leaves it', async () => {
    const answer = Promise.withResolvers<void>();
    troubles = [() => answer.promise];
    const all = Array.from({ length: 4 }, () => slots.askEarly(REQUEST));
    await sleep(1);
    expect(calls).toEqual(['early h']);
    const [, second, , last] = all;
    for (const one of all) if (one !== last) one.drop();
    second?.drop();
    const taken = last?.take(ALWAYS);
    answer.resolve();
    expect((await taken)?.slot).toBeDefined();
    // The last was certain before its turn.
    expect(calls).toEqual(['early h', 'cancel', 'reserve h']);
  });

  test('keeps no message waiting that is certain, however many others give theirs back', async () => {
    const storm = Array.from({ length: 50 }, (_, n) => slots.askEarly(of(`joiner-${n}`)));
    const certain = await Promise.all(['a', 'b', 'c'].map((name) => slots.take(of(name), ALWAYS)));
    expect(certain.map(({ slot, reservation }) => [slot !== undefined, reservation.waitMs])).toEqual(
      Array.from({ length: 3 }, () => [true, 0]),
    );
    for (const one of storm) one.drop();
    await sleep(5);
    expect(await left()).toBe(2);
  });
});
