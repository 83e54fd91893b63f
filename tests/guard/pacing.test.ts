import { afterEach, beforeEach, describe, expect, jest, test } from '@jest/globals';
import type { Problem } from '../../src/errors.ts';
import { type RequestLocals, waitedMs } from '../../src/http/locals.ts';
import { type EndpointBudgets, withJitterMargin } from '../../src/pace/budgets.ts';
import { memoryBudgets } from '../../src/pace/memory-budgets.ts';

// On the clock that `jest.useFakeTimers` stops: who has a turn when does not depend on how busy the machine is.
jest.unstable_mockModule('../../src/pace/abortable-sleep.ts', () => ({
  abortableSleep: (ms: number, signal: AbortSignal) =>
    new Promise<void>((resolve, reject) => {
      const timer = setTimeout(resolve, Math.ceil(ms) + 1);
      const abort = () => {
        clearTimeout(timer);
        reject(signal.reason);
      };
      if (signal.aborted) abort();
      else signal.addEventListener('abort', abort, { once: true });
    }),
}));
const { LIVE_YIELD_MS } = await import('../../src/pace/live-turns.ts');
const { pacing } = await import('../../src/pace/pacing.ts');
const { resumptionTurns } = await import('../../src/pace/resumption-turns.ts');
const { slotWaits } = await import('../../src/pace/slot-waits.ts');
const { range } = await import('../harness/relay/numbered-messages.ts');
const { NEW_MESSAGES, startApart, startCrowd } = await import('../harness/relay/resumption-crowd.ts');

const RATE = { limit: 5, windowMs: 1000, maxWaitMs: 10_000 };
const ONE = { limit: 1, windowMs: 1000, maxWaitMs: 60_000 };
const BOT = 'acme/helper';
const ALWAYS = new AbortController().signal;
const AWAY = new Error('away');
const of = (...holders: string[]) => ({ endpoint: BOT, holders });

beforeEach(() => void jest.useFakeTimers());
afterEach(() => {
  jest.restoreAllMocks();
  jest.useRealTimers();
});

/** Budgets, and the waits for their slots; `at` says how much time has passed. */
function begin(rate = ONE) {
  const from = performance.now();
  const budgets = memoryBudgets(rate);
  return { budgets, slots: slotWaits(budgets, rate), at: () => performance.now() - from };
}
const pass = (ms: number) => jest.advanceTimersByTimeAsync(ms);
/** Lets this much time pass; resolves with what `work` resolves with by then. */
async function within<T>(ms: number, work: Promise<T>): Promise<T> {
  work.catch(() => {});
  await pass(ms);
  return work;
}
/** Takes a slot that has come. */
async function taken({ slots }: ReturnType<typeof begin>, holder = 'first') {
  const { slot } = await slots.take(of(holder), ALWAYS);
  if (!slot) throw new Error('there is no slot');
  return slot;
}

describe('messages that wait for slots', () => {
  test('start in their order, as many in a window as may, and one is refused at once behind as many as can start in time', async () => {
    const { slots, at } = begin({ limit: 2, windowMs: 1000, maxWaitMs: 1999 });
    const started: number[][] = [];
    const all = range(4).map(async (n) => {
      const { reservation } = await slots.take(of('ann'), ALWAYS);
      started.push([n, at(), reservation.resetMs]);
    });
    expect(await slots.take(of('ann'), ALWAYS)).toEqual({
      reservation: { state: 'refused', waitMs: 1000, ticket: '', remaining: 0, resetMs: 1000 },
    });
    await within(1001, Promise.all(all));
    expect(started).toEqual([
      [0, 0, 1000],
      [1, 0, 1000],
      [2, 1001, 999],
      [3, 1001, 999],
    ]);
  });

  test("wait for their holder's earlier slots, and for all of them together no longer than they may", async () => {
    const { slots, at } = begin({ ...ONE, maxWaitMs: 4100 });
    const take = async (holder: string) => {
      const { slot, reservation } = await slots.take(of(holder), ALWAYS);
      return [at(), slot?.waitLeftMs ?? reservation.state];
    };
    const all = range(5).map(() => take('ann'));
    await pass(0);
    expect(await within(6000, Promise.all([...all, take('ben')]))).toEqual([
      [0, 4100],
      [1001, 3099],
      [2001, 2099],
      [4001, 99],
      [1001, 'refused'],
      [3001, 1099],
    ]);
  });

  test('are told the necessary wait where the budget refuses them, or their slot was moved too far away', async () => {
    const full = begin({ ...ONE, windowMs: 600_000 });
    await taken(full);
    const refused = await full.slots.take(of('ann'), ALWAYS);
    expect([refused.slot, refused.reservation.waitMs]).toEqual([undefined, 600_000]);
    const { slots, budgets } = begin({ ...ONE, maxWaitMs: 20_000 });
    await slots.take(of('ann'), ALWAYS);
    const asked = slots.take(of('ann'), ALWAYS);
    await pass(500);
    await slots.pauseAfterRefusal(BOT, 30_000);
    const { slot, reservation } = await within(501, asked);
    expect([slot, reservation.waitMs]).toEqual([undefined, 29_499]);
    // The slot was given back: the next one gets it.
    expect((await budgets.reserve({ ...of('x'), maxWaitMs: 60_000 })).waitMs).toBe(29_499);
  });

  test('give back what they have when they are aborted, before and after its time has come', async () => {
    const { slots, at } = begin();
    const stop = new AbortController();
    const first = slots.take(of('ann'), stop.signal);
    stop.abort('stopped');
    await expect(first).rejects.toBe('stopped');
    await slots.take(of('ann'), ALWAYS);
    expect(at()).toBe(0);
    const leaving = new AbortController();
    const second = slots.take(of('ann'), leaving.signal);
    await pass(10);
    leaving.abort('left');
    await expect(second).rejects.toBe('left');
    await within(991, slots.take(of('ben'), ALWAYS));
  });

  test('do not keep others of their holder waiting if the budget throws', async () => {
    const all = begin();
    jest.spyOn(all.budgets, 'reserve').mockRejectedValueOnce(AWAY);
    await expect(all.slots.take(of('ann'), ALWAYS)).rejects.toThrow('away');
    await taken(all, 'ann');
  });

  test('of a guest wait no longer than allowed behind another of its address', async () => {
    // The time-out of a signal takes real time.
    jest.useRealTimers();
    const { budgets, slots } = begin({ ...RATE, maxWaitMs: 20 });
    const { reserve } = budgets;
    const hold = Promise.withResolvers<void>();
    jest.spyOn(budgets, 'reserve').mockImplementationOnce(async (request) => {
      await hold.promise;
      return reserve(request);
    });
    const first = slots.take(of('one', 'address'), ALWAYS);
    expect((await slots.take(of('two', 'address'), ALWAYS)).slot).toBeUndefined();
    hold.resolve();
    expect((await first).slot).toBeDefined();
    expect((await slots.take(of('two', 'address'), ALWAYS)).slot).toBeDefined();
  });

  test.each<[string, number, (n: number) => string[], string[]]>([
    ['two slots at most by 100 messages of another user', 2, () => ['ann'], ['ben']],
    ['two slots at most by 20 guests elsewhere', 2, (n) => [`guest-${n % 20}`, 'here'], ['ben', 'there']],
    ['two slots at most by a guest with 20 addresses', 2, (n) => ['ann', `at-${n % 20}`], ['ben', 'there']],
    // The one that starts, two with future slots, and the next in the queue of the address.
    ['four slots at most by a greedy guest at their address', 4, () => ['greedy', 'here'], ['ben', 'here']],
  ])('are delayed by %s', async (_by, most, others, own) => {
    const { slots } = begin({ ...RATE, limit: 2, maxWaitMs: 60_000 });
    let started = 0;
    const all = range(100).map((n) => slots.take(of(...others(n)), ALWAYS).then(() => started++));
    await pass(1500);
    const before = started;
    const delay = slots.take(of(...own), ALWAYS).then(() => started - before);
    await within(60_000, Promise.all(all));
    expect(await delay).toBeLessThanOrEqual(most);
  });
});

describe('a message that has its slot', () => {
  test('is counted again, before and after it is sent, only if it was delayed for more than 5 ms', async () => {
    const all = begin();
    const slot = await taken(all);
    const uses = (['start', 'sent'] as const).map((name) => jest.spyOn(all.budgets, name));
    const times = () => uses.map(({ mock }) => mock.calls.length);
    await pass(5);
    expect(await all.slots.renew(slot, ALWAYS)).toBe(0);
    all.slots.sent(slot);
    expect(times()).toEqual([0, 0]);
    await pass(1);
    all.slots.sent(slot);
    expect([await all.slots.renew(slot, ALWAYS), await all.slots.renew(slot, ALWAYS)]).toEqual([0, 0]);
    expect(times()).toEqual([1, 1]);
    expect((await all.budgets.reserve({ ...of('x'), maxWaitMs: 2000 })).waitMs).toBe(1000);
  });

  test('waits if there is no room when it is sent late, and gives its slot back if that takes too long, or it is aborted', async () => {
    const all = begin();
    const late = await taken(all);
    await pass(1000);
    await taken(all, 'other');
    await within(1001, all.slots.renew({ ...late, ticket: 'a late one' }, ALWAYS));
    await all.budgets.pause(BOT, 60_000);
    await pass(10);
    const cancel = jest.spyOn(all.budgets, 'cancel');
    expect(await all.slots.renew({ ...late, waitLeftMs: 1000 }, ALWAYS)).toBe(59_990);
    const stop = new AbortController();
    const renewed = all.slots.renew({ ...late, startedAt: 0, waitLeftMs: 100_000 }, stop.signal);
    stop.abort('stopped');
    await expect(renewed).rejects.toBe('stopped');
    expect(cancel.mock.calls).toEqual([
      [BOT, late.ticket],
      [BOT, late.ticket],
    ]);
  });

  test('may wait a window and RATE_MAX_WAIT_MS for one more slot, for another key', async () => {
    for (const [pausedMs, isTaken] of [
      [61_100, true],
      [61_101, false],
    ] as const) {
      const all = begin();
      const slot = await taken(all);
      await all.budgets.pause(BOT, pausedMs);
      const extra = await within(61_102, all.slots.takeExtra(slot, ALWAYS));
      expect(extra).toEqual(isTaken ? expect.objectContaining({ ticket: `${slot.ticket}+` }) : pausedMs);
    }
  });

  test.each<
    [
      'start' | 'pause',
      string,
      (all: ReturnType<typeof begin>, slot: Awaited<ReturnType<typeof taken>>) => Promise<unknown>,
    ]
  >([
    ['start', '', ({ slots }, slot) => slots.renew({ ...slot, startedAt: -1000 }, ALWAYS)],
    ['pause', '', ({ slots }, slot) => slots.takeAfterRefusal(slot, 1000, ALWAYS)],
    ['start', '+', ({ slots }, slot) => slots.takeExtra(slot, ALWAYS)],
  ])(
    'gives it back if the budget fails to %s, since it may have been reserved%s',
    async (name, more, ask) => {
      const all = begin();
      const slot = await taken(all);
      jest.spyOn(all.budgets, name).mockRejectedValue(AWAY);
      const cancel = jest.spyOn(all.budgets, 'cancel');
      await expect(ask(all, slot)).rejects.toBe(AWAY);
      expect(cancel.mock.calls).toEqual([[BOT, slot.ticket + more]]);
    },
  );
});

describe('the pacing of a message', () => {
  type Log = Pick<RequestLocals, 'slotWait'>;
  let asked: jest.SpiedFunction<EndpointBudgets['reserve']>;
  const pacedBy = (rate: typeof ONE) => {
    const { budgets, slots } = begin(rate);
    asked = jest.spyOn(budgets, 'reserve');
    const pace = pacing(slots, rate);
    return (log: Log = {}, signal = ALWAYS) =>
      pace({ endpoint: BOT, holders: { user: 'u1', address: 'a1' }, signal, log }).start();
  };

  test.each([
    [0, 'r=0;t=2', 2],
    [499, 'r=0;t=1', 2],
    [500, 'r=0;t=1', 1],
    [1499.5, 'r=0;t=0', 1],
  ])('tells of the budget in whole seconds, rounded up: after %d ms', async (ms, rateLimit, retryAfter) => {
    const start = pacedBy({ limit: 1, windowMs: 1500, maxWaitMs: 0 });
    const headers = { RateLimit: '"endpoint";r=0;t=2', 'RateLimit-Policy': '"endpoint";q=1;w=2' };
    expect(await start()).toEqual(headers);
    await pass(ms);
    const log: Log = {};
    await expect(start(log)).rejects.toMatchObject({
      code: 'rate_limited',
      options: { retryAfter, headers: { ...headers, RateLimit: `"endpoint";${rateLimit}` } },
    } satisfies Record<keyof Pick<Problem, 'code' | 'options'>, unknown>);
    expect(log.slotWait?.outcome).toBe('refused');
    expect(asked).toHaveBeenLastCalledWith({ endpoint: BOT, holders: ['u1', 'a1'], maxWaitMs: 0 });
  });

  test('knows its wait for the log already at the moment when the client leaves', async () => {
    const start = pacedBy(ONE);
    const [stop, log]: [AbortController, Log] = [new AbortController(), {}];
    await start(log);
    expect(log.slotWait?.outcome).toBe('granted');
    const started = start(log, stop.signal);
    started.catch(() => {});
    await pass(400);
    stop.abort('left');
    const shown = () => [log.slotWait?.outcome, log.slotWait && waitedMs(log.slotWait)];
    // The log line is written when the client's connection closes, before the wait rejects.
    expect(shown()).toEqual(['given_up', 400]);
    await expect(started).rejects.toBe('left');
    await pass(1000);
    expect(shown()).toEqual(['given_up', 400]);
  });
});

describe('300 resumptions', () => {
  test.each([1, 20])(
    'let 20 new messages of %d users start in time, and take every second slot at most',
    async (newUsers) => {
      const crowd = startCrowd({ instances: [memoryBudgets(withJitterMargin(RATE))], rate: RATE, newUsers });
      const { refused, lastNewMs, resumptions, messages } = await within(15_000, crowd);
      expect([refused, messages]).toEqual([0, NEW_MESSAGES]);
      expect(lastNewMs).toBeLessThan(RATE.maxWaitMs);
      expect(resumptions).toBeGreaterThan(0);
      expect(resumptions).toBeLessThanOrEqual(messages);
    },
  );

  test.each([
    [5, 10, 50],
    [100, 3, 300],
  ])(
    'use nine of ten slots that messages get elsewhere, if nobody else waits, at %d a second',
    async (limit, windows, sent) => {
      const rate = { ...RATE, limit };
      const apart = startApart([memoryBudgets(withJitterMargin(rate))], rate, windows);
      const { resumptions, messages } = await within(windows * 1000 + 100, apart);
      expect(messages).toBe(sent);
      expect(resumptions).toBeGreaterThanOrEqual(0.9 * messages);
    },
  );
});

describe('resumptions', () => {
  const turn = (budgets: EndpointBudgets, rate = ONE) => {
    const takeTurn = resumptionTurns(budgets, rate);
    return (user: string, signal = ALWAYS, address = 'here') =>
      takeTurn({ endpoint: BOT, holders: { user, address } }, signal);
  };

  test.each([
    ['user', [...'aaaabbc'].map((user) => ({ user })), 'abcabaa'],
    [
      'address if they are guests',
      [...'aabcd'].map((user) => ({ user, address: user === 'd' ? 'there' : 'here' })),
      'adbca',
    ],
  ])('are served in turn by %s', async (_by, all, served) => {
    const takeTurn = resumptionTurns(memoryBudgets(ONE), ONE);
    let order = '';
    const turns = all.map(async (holders) => {
      await takeTurn({ endpoint: BOT, holders }, ALWAYS);
      order += holders.user;
    });
    await within(60_000, Promise.all(turns));
    expect(order).toBe(served);
  });

  test('wait longer than a message may, and no timer is set for longer than it can be', async () => {
    const { budgets, at } = begin();
    const take = turn(budgets);
    await budgets.pause(BOT, 120_000);
    await within(120_001, take('ann'));
    const slow = { ...ONE, windowMs: 3_000_000_000 };
    const long = memoryBudgets(slow);
    const reserve = jest.spyOn(long, 'reserve');
    const takeLong = turn(long, slow);
    await takeLong('ann');
    void takeLong('ben').catch(() => {});
    await pass(1000);
    expect([reserve.mock.calls.length, at()]).toEqual([2, 121_001]);
  });

  test('give their slot back when they are aborted, and the next one takes its turn', async () => {
    const { budgets, at } = begin();
    const take = turn(budgets);
    await take('ann');
    const [stop, leaving] = [new AbortController(), new AbortController()];
    const [first, second] = [take('ann', stop.signal), take('ann', leaving.signal)];
    const third = take('ann');
    await pass(100);
    leaving.abort('left');
    await expect(second).rejects.toBe('left');
    stop.abort('stopped');
    await expect(first).rejects.toBe('stopped');
    await within(901, third);
    expect(at()).toBe(1001);
  });

  test.each(['reserve', 'start'] as const)(
    'fail if the budget fails to %s, and the next one takes its turn',
    async (name) => {
      const { budgets } = begin();
      const take = turn(budgets);
      await take('ann');
      await pass(50);
      jest.spyOn(budgets, name).mockRejectedValueOnce(AWAY);
      const [first, second] = [take('ann'), take('ann')];
      await expect(within(2000, first)).rejects.toBe(AWAY);
      await second;
    },
  );

  test('that have their turn count again if they were delayed, get one more slot for the next key, and pause the bot', async () => {
    const calls: string[] = [];
    const budgets: EndpointBudgets = {
      ...begin().budgets,
      async start(_bot, ticket) {
        calls.push(`start ${ticket}`);
        // Longer than a message may wait.
        return calls.length === 2 ? 120_000 : 0;
      },
      sent: async (_bot, ticket) => void calls.push(`sent ${ticket}`),
      pause: async (_bot, ms) => void calls.push(`pause ${ms}`),
    };
    const slot = await turn(budgets)('ann');
    await pass(20);
    await slot.renewSlot();
    await within(120_001, slot.takeExtraSlot());
    await pass(20);
    await slot.renewSlot();
    await pass(20);
    slot.sent();
    await slot.refused(86_400_000);
    const t = '1 resumption ';
    expect(calls).toEqual([
      ...['', '+', '+', '+'].map((more) => `start ${t}${more}`),
      `sent ${t}+`,
      'pause 60000',
    ]);
  });
});

describe('live streams', () => {
  let order = '';
  function world() {
    order = '';
    const { budgets, slots } = begin();
    const [live, resume] = [resumptionTurns(budgets, ONE, LIVE_YIELD_MS), resumptionTurns(budgets, ONE)];
    const next = async (kind: string, work: Promise<unknown>) => {
      await work;
      order += kind;
    };
    const as = (kind: string, n: number) => ({ endpoint: BOT, holders: { user: `${kind}-${n}` } });
    return {
      l: (n: number) => next('l', live(as('l', n), ALWAYS)),
      r: (n: number) => next('r', resume(as('r', n), ALWAYS)),
      m: () => next('m', slots.take(of('user'), ALWAYS)),
    };
  }

  test('go after the resumptions of messages', async () => {
    const { l, r } = world();
    await l(0);
    await within(60_000, Promise.all([l(0), l(1), r(0), r(1)]));
    expect(order).toBe('lrrll');
  });

  test('take every second slot at most while messages wait, and all others after them', async () => {
    const { l, m } = world();
    await m();
    await within(60_000, Promise.all([...range(6).map(l), ...range(6).map(m)]));
    expect(order).toMatch(/^m(l?m){6}l+$/);
    expect(order.slice(0, order.lastIndexOf('m'))).toContain('l');
  });
});
