import { beforeEach, describe, expect, test } from '@jest/globals';
import { abortableSleep } from '../../src/pace/abortable-sleep.ts';
import type { EndpointBudgets, Reservation, SlotRequest } from '../../src/pace/budgets.ts';
import { memoryBudgets } from '../../src/pace/memory-budgets.ts';
import { resumptionTurns } from '../../src/pace/resumption-turns.ts';
import { pass, stopClock } from '../harness/clock/stop-clock.ts';
import { until } from '../harness/clock/until.ts';

const RATE = { limit: 5, windowMs: 1000, maxWaitMs: 1000 };
const BOT = 'acme/helper';
const ALWAYS = new AbortController().signal;

const asked: SlotRequest[] = [];
const started: string[] = [];
const cancelled: string[] = [];
const pauses: [pauseMs: number, first: string | undefined][] = [];
let answers: (Partial<Reservation> | Error)[];
/** The next answers of `start`; after them, 0. */
let waits: (number | Error)[];

/** Budgets that give the answers that a test sets. */
const budgets: EndpointBudgets = {
  async reserve(request) {
    asked.push(request);
    const next = answers.shift() ?? {};
    if (next instanceof Error) throw next;
    const plain = { state: 'granted', waitMs: 0, remaining: 0, resetMs: 1000 } as const;
    return { ...plain, ticket: `t${asked.length}`, ...next };
  },
  async start(_endpoint, ticket) {
    started.push(ticket);
    const next = waits.shift() ?? 0;
    if (next instanceof Error) throw next;
    return next;
  },
  async cancel(_endpoint, ticket) {
    cancelled.push(ticket);
  },
  async sent() {},
  async pause(_endpoint, pauseMs, first) {
    pauses.push([pauseMs, first]);
  },
};

let takeTurn: ReturnType<typeof resumptionTurns>;
beforeEach(() => {
  for (const calls of [asked, started, cancelled, pauses]) calls.length = 0;
  answers = [];
  waits = [];
  takeTurn = resumptionTurns(budgets, RATE);
});

const of = (user: string, address?: string) => ({
  endpoint: BOT,
  holders: address === undefined ? { user } : { user, address },
});

/** Lets all promises settle that wait for nothing else. */
const settled = () => new Promise((resolve) => setImmediate(resolve));

describe('a resumption that waits for its turn', () => {
  test('counts as one of all resumptions, which have one future slot together, and not as one of its user', async () => {
    await takeTurn(of('ann', 'address'), ALWAYS);
    expect(asked).toMatchObject([{ endpoint: BOT, holders: ['resumption'], maxFutureSlots: 1 }]);
  });

  test.each([
    ['asks the budget only some time after the one before has started', RATE, 50],
    ['waits for half of the time between two slots where that is short', { ...RATE, limit: 100 }, 5],
  ])('%s', async (_title, rate, yieldMs) => {
    stopClock();
    takeTurn = resumptionTurns(budgets, rate);
    await takeTurn(of('ann'), ALWAYS);
    const second = takeTurn(of('ben'), ALWAYS);
    pass(yieldMs - 1);
    await settled();
    expect(asked).toHaveLength(1);
    pass(1);
    await second;
    expect(asked).toHaveLength(2);
  });

  test('asks for a slot later than messages that were told the same time', async () => {
    answers = [{ state: 'share_taken', waitMs: 100 }];
    const turn = takeTurn(of('ann'), ALWAYS);
    await abortableSleep(100, ALWAYS);
    expect(asked).toHaveLength(1);
    await turn;
    expect(asked).toHaveLength(2);
  });

  test('waits also for a slot that the budget refuses, until its signal aborts', async () => {
    answers = [{ state: 'refused', waitMs: 50 }];
    await takeTurn(of('ann'), ALWAYS);
    expect(asked).toHaveLength(2);
    answers = [{ state: 'refused', waitMs: 3_000_000_000 }];
    const stop = new AbortController();
    const turn = takeTurn(of('ben'), stop.signal);
    await until(() => asked.length === 3);
    // A timer of so many ms would end after 1 ms.
    await abortableSleep(10, ALWAYS);
    expect(asked).toHaveLength(3);
    stop.abort('stopped');
    await expect(turn).rejects.toBe('stopped');
  });

  test('waits for its start longer than a message may', async () => {
    waits = [1200];
    answers = [{ waitMs: 10 }];
    await takeTurn(of('ann'), ALWAYS);
    expect([started, cancelled]).toEqual([['t1', 't1'], []]);
  });

  test('gives its slot back when it is aborted, and the next one takes its turn', async () => {
    answers = [{ waitMs: 60_000 }];
    const [stop, leaving] = [new AbortController(), new AbortController()];
    const first = takeTurn(of('ann'), stop.signal);
    const second = takeTurn(of('ann'), leaving.signal);
    const third = takeTurn(of('ann'), ALWAYS);
    await settled();
    leaving.abort('left');
    await expect(second).rejects.toBe('left');
    expect(asked).toHaveLength(1);
    stop.abort('stopped');
    await expect(first).rejects.toBe('stopped');
    expect(cancelled).toEqual(['t1']);
    await third;
    expect(asked).toHaveLength(2);
  });

  test.each<[string, Partial<Reservation> | Error]>([
    ['reserve', new Error('away')],
    ['start', { waitMs: 1 }],
  ])('fails if the budget fails to %s, and the next one takes its turn', async (_call, answer) => {
    answers = [answer];
    waits = [new Error('away')];
    const first = takeTurn(of('ann'), ALWAYS);
    const second = takeTurn(of('ann'), ALWAYS);
    await expect(first).rejects.toThrow('away');
    await second;
    expect(asked).toHaveLength(2);
  });
});

describe('resumptions of several users', () => {
  const rate = { limit: 1, windowMs: 50, maxWaitMs: 50 };
  const order: string[] = [];
  beforeEach(() => {
    order.length = 0;
    takeTurn = resumptionTurns(memoryBudgets(rate), rate);
  });
  const resume = async (user: string, address?: string) => {
    await takeTurn(of(user, address), ALWAYS);
    order.push(user);
  };

  test('are served by user in turn', async () => {
    await Promise.all(['ann', 'ann', 'ann', 'ann', 'ben', 'ben', 'carl'].map((user) => resume(user)));
    expect(order).toEqual(['ann', 'ben', 'carl', 'ann', 'ben', 'ann', 'ann']);
  });

  test('are served by address in turn if they are guests', async () => {
    const guests = ['ann', 'ann', 'ben', 'carl'].map((user) => resume(user, 'one address'));
    await Promise.all([...guests, resume('dora', 'another')]);
    expect(order).toEqual(['ann', 'dora', 'ben', 'carl', 'ann']);
  });
});

describe('a resumption that has its turn', () => {
  test('counts again if it was delayed, and gets one more slot for the next key', async () => {
    stopClock();
    const slot = await takeTurn(of('ann'), ALWAYS);
    pass(20);
    await slot.renewSlot();
    expect(started).toEqual(['t1']);
    waits = [1500];
    await slot.takeExtraSlot();
    expect(started).toEqual(['t1', 't1+', 't1+']);
    pass(20);
    await slot.renewSlot();
    expect(started.at(-1)).toBe('t1+');
    expect(cancelled).toEqual([]);
  });

  test('pauses the endpoint for at most a minute if the service refuses it, and gets no slot after that', async () => {
    const slot = await takeTurn(of('ann'), ALWAYS);
    await slot.refused(86_400_000);
    expect(pauses).toEqual([[60_000, undefined]]);
  });
});
