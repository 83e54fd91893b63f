import { afterEach, beforeEach, describe, expect, jest, test } from '@jest/globals';
import { Problem } from '../../src/errors.ts';
import { type RequestLocals, waitedMs } from '../../src/http/locals.ts';
import type { EndpointBudgets, Reservation, SlotRequest } from '../../src/pace/budgets.ts';
import type { EndpointSlot, SlotWaits } from '../../src/pace/slot-waits.ts';
import { abortableSleep } from '../harness/clock/virtual-sleep.ts';

jest.unstable_mockModule('../../src/pace/abortable-sleep.ts', () => ({ abortableSleep }));
const { pacing } = await import('../../src/pace/pacing.ts');
const { resumptionTurns } = await import('../../src/pace/resumption-turns.ts');
const { slotWaits } = await import('../../src/pace/slot-waits.ts');

const RATE = { limit: 5, windowMs: 1000, maxWaitMs: 60_000 };
const BOT = 'acme/helper';
const REQUEST = { endpoint: BOT, holders: ['h'] };
const ALWAYS = new AbortController().signal;
const AWAY = new Error('away');

let asked: SlotRequest[];
/** The other calls: `start t`. */
let calls: string[];
/** The next answers of `reserve`; after them, slots that have come. */
let answers: (Partial<Reservation> | Error | Promise<Partial<Reservation>>)[];
/** The next answers of `start`; after them, 0. */
let waits: (number | Error)[];
let startOfTest: number;

const budgets: EndpointBudgets = {
  async reserve(request) {
    asked.push(request);
    const next = (await answers.shift()) ?? {};
    if (next instanceof Error) throw next;
    return { state: 'granted', waitMs: 0, ticket: 't', remaining: 0, resetMs: 1000, ...next };
  },
  async start(_endpoint, ticket) {
    calls.push(`start ${ticket}`);
    const next = waits.shift() ?? 0;
    if (next instanceof Error) throw next;
    return next;
  },
  cancel: async (_endpoint, ticket) => void calls.push(`cancel ${ticket}`),
  sent: async (_endpoint, ticket) => void calls.push(`sent ${ticket}`),
  pause: async (_endpoint, ms, first) => void calls.push(`pause ${ms} ${first}`),
};

let slots: SlotWaits;
beforeEach(() => {
  jest.useFakeTimers();
  [asked, calls, answers, waits] = [[], [], [], []];
  slots = slotWaits(budgets, RATE);
  startOfTest = performance.now();
});
afterEach(() => void jest.useRealTimers());

const now = () => performance.now() - startOfTest;
const pass = (ms: number) => jest.advanceTimersByTimeAsync(ms);
/** Lets this much time pass; resolves with what `work` resolves with by then. */
async function within<T>(ms: number, work: Promise<T>): Promise<T> {
  work.catch(() => {});
  await pass(ms);
  return work;
}
const slotOf = (more: Partial<EndpointSlot> = {}): EndpointSlot => ({
  ...{ endpoint: BOT, ticket: 't', startedAt: performance.now(), waitLeftMs: 1000 },
  ...more,
});

describe('a message that waits for a slot', () => {
  test('may wait less after a wait for the earlier slots of its holder', async () => {
    answers = [{ state: 'share_taken', waitMs: 20 }];
    const { slot } = await within(21, slots.take(REQUEST, ALWAYS));
    expect(asked.map(({ maxWaitMs }) => maxWaitMs)).toEqual([60_000, 59_979]);
    expect(slot).toMatchObject({ ticket: 't', waitLeftMs: 59_979 });
  });

  test('starts when its slot has come, and may wait less later', async () => {
    answers = [{ waitMs: 20, resetMs: 500 }];
    const { slot, reservation } = await within(21, slots.take(REQUEST, ALWAYS));
    expect(calls).toEqual(['start t']);
    expect(slot).toMatchObject({ startedAt: startOfTest + 21, waitLeftMs: 59_979 });
    expect(reservation.resetMs).toBe(479);
  });

  test('does not keep others of its holder waiting if the budget throws', async () => {
    answers = [AWAY];
    await expect(slots.take(REQUEST, ALWAYS)).rejects.toThrow('away');
    expect(await slots.take(REQUEST, ALWAYS)).toMatchObject({ slot: { ticket: 't' } });
  });

  test.each([
    ['the next slot of its holder comes too late', { state: 'share_taken', waitMs: 600_000 }, [], []],
    ['the budget refuses it', { state: 'refused', waitMs: 600_000 }, [], []],
    ['its slot was moved too far away', { waitMs: 10 }, [600_000], ['start t', 'cancel t']],
  ] as const)('is told the necessary wait if %s', async (_why, answer, starts, called) => {
    [answers, waits] = [[answer], [...starts]];
    const { slot, reservation } = await within(11, slots.take(REQUEST, ALWAYS));
    expect([slot, reservation.waitMs, calls]).toEqual([undefined, 600_000, called]);
    expect(asked).toHaveLength(1);
  });

  test('gives back a slot that comes after it was aborted', async () => {
    const stop = new AbortController();
    const result = slots.take(REQUEST, stop.signal);
    stop.abort('stopped');
    await expect(result).rejects.toBe('stopped');
    expect(calls).toEqual(['cancel t']);
  });

  test('is refused at once behind as many of its holder as can start in time', async () => {
    const answer = Promise.withResolvers<Partial<Reservation>>();
    answers = [answer.promise];
    slots = slotWaits(budgets, { ...RATE, limit: 2, maxWaitMs: 1999 });
    const all = [1, 2, 3, 4].map(() => slots.take(REQUEST, ALWAYS));
    expect(await slots.take(REQUEST, ALWAYS)).toEqual({
      reservation: { state: 'refused', waitMs: 1000, ticket: '', remaining: 0, resetMs: 1000 },
    });
    answer.resolve({});
    expect((await Promise.all(all)).map(({ slot }) => slot?.ticket)).toEqual(['t', 't', 't', 't']);
  });

  test('of a guest waits no longer than allowed behind another of its address', async () => {
    // The time-out of a signal takes real time.
    jest.useRealTimers();
    const guest = (name: string) => ({ ...REQUEST, holders: [name, 'address'] });
    const answer = Promise.withResolvers<Partial<Reservation>>();
    answers = [answer.promise];
    const hasty = slotWaits(budgets, { ...RATE, maxWaitMs: 20 });
    const first = hasty.take(guest('one'), ALWAYS);
    expect((await hasty.take(guest('two'), ALWAYS)).slot).toBeUndefined();
    answer.resolve({});
    expect((await first).slot).toBeDefined();
  });
});

describe('a message that is about to be sent', () => {
  test('is counted again, and later from when it was sent, only if it was delayed for more than 5 ms', async () => {
    const slot = slotOf();
    await pass(5);
    expect(await slots.renew(slot, ALWAYS)).toBe(0);
    slots.sent(slot);
    expect(calls).toEqual([]);
    await pass(1);
    slots.sent(slot);
    expect(await slots.renew(slot, ALWAYS)).toBe(0);
    expect(await slots.renew(slot, ALWAYS)).toBe(0);
    expect(calls).toEqual(['sent t', 'start t']);
    expect(slot.startedAt).toBe(startOfTest + 6);
  });

  test('waits if there is no room now, and gives its slot back if the wait is too long', async () => {
    waits = [1100, 0];
    expect(await within(1101, slots.renew(slotOf({ startedAt: -1000 }), ALWAYS))).toBe(0);
    expect(calls).toEqual(['start t', 'start t']);
    waits = [1101];
    expect(await slots.renew(slotOf({ startedAt: -1000 }), ALWAYS)).toBe(1101);
    expect(calls.slice(2)).toEqual(['start t', 'cancel t']);
  });

  test('gives its slot back if it is aborted during the wait', async () => {
    waits = [500];
    const stop = new AbortController();
    const renewed = slots.renew(slotOf({ startedAt: -1000 }), stop.signal);
    stop.abort('stopped');
    await expect(renewed).rejects.toBe('stopped');
    expect(calls).toEqual(['start t', 'cancel t']);
  });
});

describe('a message that the service has refused', () => {
  test('pauses its bot for as long as the service has asked, but at most a minute', async () => {
    for (const askedMs of [2000, 60_000, 61_000]) await slots.takeAfterRefusal(slotOf(), askedMs, ALWAYS);
    await slots.pauseAfterRefusal(BOT, 86_400_000);
    const pauses = calls.filter((call) => call.startsWith('pause'));
    expect(pauses).toEqual(['pause 2000 t', 'pause 60000 t', 'pause 60000 t', 'pause 60000 undefined']);
  });

  test('gets the length of the pause, also if an earlier pause is longer', async () => {
    waits = [45_000];
    expect(await slots.takeAfterRefusal(slotOf(), 2000, ALWAYS)).toBe(45_000);
    expect(calls.at(-1)).toBe('cancel t');
  });

  test('gets one more slot for another key, for which it may wait a window and RATE_MAX_WAIT_MS', async () => {
    waits = [61_100];
    expect(await within(61_101, slots.takeExtra(slotOf(), ALWAYS))).toMatchObject({ ticket: 't+' });
    waits = [61_101];
    expect(await slots.takeExtra(slotOf(), ALWAYS)).toBe(61_101);
  });

  test.each([
    [
      'right before the message is sent',
      't',
      (all: SlotWaits) => all.renew(slotOf({ startedAt: -1000 }), ALWAYS),
    ],
    ['after it was refused', 't', (all: SlotWaits) => all.takeAfterRefusal(slotOf(), 1000, ALWAYS)],
    ['after its key was refused', 't+', (all: SlotWaits) => all.takeExtra(slotOf(), ALWAYS)],
  ])(
    'gives its slot back if the budget fails %s, since it may have been reserved',
    async (_when, ticket, ask) => {
      const rejects = () => Promise.reject(AWAY);
      await expect(ask(slotWaits({ ...budgets, start: rejects, pause: rejects }, RATE))).rejects.toBe(AWAY);
      expect(calls).toEqual([`cancel ${ticket}`]);
    },
  );
});

describe('the pacing of a message', () => {
  const paced = (log: Pick<RequestLocals, 'slotWait'>, signal = ALWAYS, rate = RATE) =>
    pacing(
      slotWaits(budgets, rate),
      rate,
    )({ endpoint: BOT, holders: { user: 'u1', address: 'a1' }, signal, log });

  test.each([
    ['a slot', {}, { remaining: 4, resetMs: 26 }, 'r=4;t=1', undefined],
    ['the last slot', {}, { remaining: 0, resetMs: 1025 }, 'r=0;t=1', undefined],
    ['a slot whose window is over', {}, { resetMs: 10 }, 'r=0;t=0', undefined],
    ['no slot', { state: 'refused', waitMs: 0.2 }, { resetMs: 1025.1 }, 'r=0;t=2', 1],
    ['no slot for a second', { state: 'refused', waitMs: 1000 }, { resetMs: 2000 }, 'r=0;t=2', 1],
    ['no slot for longer', { state: 'refused', waitMs: 1001 }, { resetMs: 2000 }, 'r=0;t=2', 2],
  ] as const)(
    'tells of %s in whole seconds, rounded up',
    async (_what, answer, left, rateLimit, retryAfter) => {
      answers = [{ ...answer, ...left }];
      const log: Pick<RequestLocals, 'slotWait'> = {};
      const told = await paced(log, ALWAYS, { ...RATE, windowMs: 1500, maxWaitMs: 0 })
        .start()
        .catch(({ code, options }: Problem) => ({ code, ...options, ...options.headers }));
      expect(asked).toEqual([{ endpoint: BOT, holders: ['u1', 'a1'], maxWaitMs: 0 }]);
      expect(told).toMatchObject({
        RateLimit: `"endpoint";${rateLimit}`,
        'RateLimit-Policy': '"endpoint";q=5;w=2',
        ...(retryAfter && { code: 'rate_limited', retryAfter }),
      });
      expect('code' in told).toBe(retryAfter !== undefined);
      expect(log.slotWait?.outcome).toBe(retryAfter === undefined ? 'granted' : 'refused');
    },
  );

  test('fails as the service did if the pause is longer than it may wait, with the time', async () => {
    const message = paced({});
    await message.start();
    waits = [60_101];
    const refusal = new Problem('upstream_rate_limited', 'Busy.', { upstream: 'no' });
    await expect(message.waitAfterRefusal(refusal)).rejects.toMatchObject({
      code: 'upstream_rate_limited',
      options: { upstream: 'no', retryAfter: 61 },
    });
    expect(calls).toContain('pause 1000 t');
  });

  test('knows its wait for the log already at the moment when the client leaves', async () => {
    answers = [{ waitMs: 50_000 }];
    const stop = new AbortController();
    const log: Pick<RequestLocals, 'slotWait'> = {};
    const started = paced(log, stop.signal).start();
    started.catch(() => {});
    await pass(40_000);
    stop.abort('left');
    const shown = () => [log.slotWait?.outcome, log.slotWait && waitedMs(log.slotWait)];
    // The log line is written when the client's connection closes, before the wait rejects.
    expect(shown()).toEqual(['given_up', 40_000]);
    await expect(started).rejects.toBe('left');
    await pass(1000);
    expect(shown()).toEqual(['given_up', 40_000]);
  });
});

describe('a resumption', () => {
  const of = (user: string) => ({ endpoint: BOT, holders: { user, address: 'here' } });
  let takeTurn: ReturnType<typeof resumptionTurns>;
  beforeEach(() => {
    takeTurn = resumptionTurns(budgets, RATE);
  });

  test('counts as one of all resumptions, which have one future slot together, and not as one of its user', async () => {
    await takeTurn(of('ann'), ALWAYS);
    expect(asked).toMatchObject([{ endpoint: BOT, holders: ['resumption'], maxFutureSlots: 1 }]);
  });

  test.each([
    ['some time after the one before has started', 5, 50],
    ['half of the time between two slots later where that is short', 100, 5],
  ])('asks the budget only %s', async (_when, limit, yieldMs) => {
    takeTurn = resumptionTurns(budgets, { ...RATE, limit });
    await takeTurn(of('ann'), ALWAYS);
    const second = takeTurn(of('ben'), ALWAYS);
    await pass(yieldMs - 1);
    expect(asked).toHaveLength(1);
    await within(1, second);
    expect(asked).toHaveLength(2);
  });

  test.each([
    ['share_taken', 100, 150],
    ['refused', 50, 100],
    // A timer of so many ms would end after 1 ms.
    ['refused', 3_000_000_000, 3_600_050],
  ] as const)(
    'that is told %s for %d ms asks again later than messages that were told the same',
    async (...row) => {
      const [state, waitMs, againMs] = row;
      answers = [{ state, waitMs }];
      const turn = takeTurn(of('ann'), ALWAYS);
      await pass(againMs);
      expect(asked).toHaveLength(1);
      await within(1, turn);
      expect([asked.length, now()]).toEqual([2, againMs + 1]);
    },
  );

  test('waits for its start longer than a message may', async () => {
    [waits, answers] = [[120_000], [{ waitMs: 10 }]];
    await within(120_100, takeTurn(of('ann'), ALWAYS));
    expect(calls).toEqual(['start t', 'start t']);
  });

  test('gives its slot back when it is aborted, and the next one takes its turn', async () => {
    answers = [{ waitMs: 60_000 }];
    const [stop, leaving] = [new AbortController(), new AbortController()];
    const [first, second] = [takeTurn(of('ann'), stop.signal), takeTurn(of('ann'), leaving.signal)];
    const third = takeTurn(of('ann'), ALWAYS);
    await pass(1);
    leaving.abort('left');
    await expect(second).rejects.toBe('left');
    expect(asked).toHaveLength(1);
    stop.abort('stopped');
    await expect(first).rejects.toBe('stopped');
    expect(calls).toEqual(['cancel t']);
    await third;
    expect(asked).toHaveLength(2);
  });

  test.each<[string, Partial<Reservation> | Error, Error[]]>([
    ['reserve', AWAY, []],
    ['start', { waitMs: 1 }, [AWAY]],
  ])('fails if the budget fails to %s, and the next one takes its turn', async (_call, answer, starts) => {
    [answers, waits] = [[answer], starts];
    const [first, second] = [takeTurn(of('ann'), ALWAYS), takeTurn(of('ann'), ALWAYS)];
    await expect(within(2, first)).rejects.toBe(AWAY);
    await second;
    expect(asked).toHaveLength(2);
  });

  test('that has its turn counts again if it was delayed, gets one more slot for the next key, and pauses the bot', async () => {
    const slot = await takeTurn(of('ann'), ALWAYS);
    await pass(20);
    await slot.renewSlot();
    waits = [120_000];
    await within(120_001, slot.takeExtraSlot());
    await pass(20);
    await slot.renewSlot();
    await pass(20);
    slot.sent();
    await slot.refused(86_400_000);
    const extra = ['start t+', 'start t+', 'start t+', 'sent t+'];
    expect(calls).toEqual(['start t', ...extra, 'pause 60000 undefined']);
  });
});
