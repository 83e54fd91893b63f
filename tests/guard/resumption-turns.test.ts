import { beforeEach, describe, expect, test } from '@jest/globals';
import type {
  EndpointBudgets,
  Pause,
  Reservation,
  SlotRequest,
  StartAnswer,
} from '../../src/pace/budgets.ts';
import { memoryBudgets } from '../../src/pace/memory-budgets.ts';
import { resumptionTurns } from '../../src/pace/resumption-turns.ts';
import { countAwakeMs } from '../support/awake.ts';
import { sleep } from '../support/sleep.ts';

const RATE = { limit: 5, windowMs: 1000, maxWaitMs: 1000 };
const BOT = 'acme/helper';
const ALWAYS = new AbortController().signal;

const asked: SlotRequest[] = [];
const askedAt: number[] = [];
const started: string[] = [];
const cancelled: string[] = [];
const pauses: [ticket: string, pause: Pause][] = [];
const judged: [ticket: string, accepted: boolean][] = [];
let answers: (Partial<Reservation> | Error)[];
/** The next answers of `start`; after them, 0. */
let waits: (Partial<StartAnswer> | Error)[];

const NOW: StartAnswer = { waitMs: 0, trialLeftMs: 0, onTrial: false };

/** Budgets that give the answers that a test sets. */
const budgets: EndpointBudgets = {
  async reserve(request) {
    asked.push(request);
    askedAt.push(performance.now());
    const next = answers.shift() ?? {};
    if (next instanceof Error) throw next;
    return { ...NOW, state: 'granted', ticket: `t${asked.length}`, remaining: 0, resetMs: 1000, ...next };
  },
  async start(_endpoint, ticket) {
    started.push(ticket);
    const next = waits.shift() ?? {};
    if (next instanceof Error) throw next;
    return { ...NOW, ...next };
  },
  async cancel(_endpoint, ticket) {
    cancelled.push(ticket);
  },
  async sent() {},
  async penalize(_endpoint, ticket, pause) {
    pauses.push([ticket, pause]);
  },
  async judged(_endpoint, ticket, accepted) {
    judged.push([ticket, accepted]);
  },
};

let takeTurn: ReturnType<typeof resumptionTurns>;
beforeEach(() => {
  for (const calls of [asked, askedAt, started, cancelled, pauses, judged]) calls.length = 0;
  answers = [];
  waits = [];
  takeTurn = resumptionTurns(budgets, RATE);
});

const of = (user: string, address?: string) => ({
  endpoint: BOT,
  holders: address === undefined ? { user } : { user, address },
});

describe('a resumption that waits for its turn', () => {
  test('counts as one of all resumptions, which have one future slot together, and not as one of its user', async () => {
    await takeTurn(of('ann', 'address'), ALWAYS);
    expect(asked).toMatchObject([{ endpoint: BOT, holders: ['resumption'], maxFutureSlots: 1 }]);
  });

  test('asks the budget only some time after the one before has started', async () => {
    answers = [{ waitMs: 100 }];
    const first = takeTurn(of('ann'), ALWAYS).then(() => performance.now());
    const second = takeTurn(of('ben'), ALWAYS);
    const startedAt = await first;
    expect(asked).toHaveLength(1);
    await second;
    expect((askedAt[1] ?? 0) - startedAt).toBeGreaterThan(45);
  });

  test('asks for a slot later than messages that were told the same time', async () => {
    answers = [{ state: 'share_taken', waitMs: 100 }];
    await takeTurn(of('ann'), ALWAYS);
    expect((askedAt[1] ?? 0) - (askedAt[0] ?? 0)).toBeGreaterThan(149);
  });

  test('waits for less than half of the time between two slots where that is short', async () => {
    const fast = resumptionTurns(budgets, { ...RATE, limit: 100 });
    const awakeMs = countAwakeMs();
    for (let n = 0; n <= 10; n++) await fast(of('ann'), ALWAYS);
    expect(awakeMs()).toBeLessThan(10 * 50);
  });

  test('waits also for a slot that the budget refuses, until its signal aborts', async () => {
    answers = [{ state: 'refused', waitMs: 50 }];
    await takeTurn(of('ann'), ALWAYS);
    expect(asked).toHaveLength(2);
    answers = [{ state: 'refused', waitMs: 3_000_000_000 }];
    const stop = new AbortController();
    const turn = takeTurn(of('ben'), stop.signal);
    await sleep(150);
    expect(asked).toHaveLength(3);
    stop.abort('stopped');
    await expect(turn).rejects.toBe('stopped');
  });

  test('waits for its start longer than a message may', async () => {
    waits = [{ waitMs: 1200 }];
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
    await sleep(10);
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
  test('goes on trial, and is judged', async () => {
    answers = [{ onTrial: true }];
    const slot = await takeTurn(of('ann'), ALWAYS);
    slot.judged(false);
    expect(judged).toEqual([['t1', false]]);
  });

  test('counts again if it was delayed, and gets one more slot for the next key', async () => {
    const slot = await takeTurn(of('ann'), ALWAYS);
    await sleep(20);
    await slot.renewSlot();
    expect(started).toEqual(['t1']);
    waits = [{ waitMs: 1500 }];
    await slot.takeExtraSlot();
    expect(started).toEqual(['t1', 't1+', 't1+']);
    await sleep(20);
    await slot.renewSlot();
    expect(started.at(-1)).toBe('t1+');
    expect(cancelled).toEqual([]);
  });

  test('pauses the endpoint for at most a minute if the service refuses it, and gets no slot after that', async () => {
    const slot = await takeTurn(of('ann'), ALWAYS);
    await slot.refused(86_400_000);
    expect(pauses).toEqual([['t1', { believedMs: 60_000, askedMs: 86_400_000, withoutSlot: true }]]);
  });
});
