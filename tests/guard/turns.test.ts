import { afterAll, beforeAll, describe, expect, jest, test } from '@jest/globals';
import { withJitterMargin } from '../../src/pace/budgets.ts';
import { memoryBudgets } from '../../src/pace/memory-budgets.ts';
import { abortableSleep } from '../harness/clock/virtual-sleep.ts';

jest.unstable_mockModule('../../src/pace/abortable-sleep.ts', () => ({ abortableSleep }));
const { LIVE_YIELD_MS } = await import('../../src/pace/live-turns.ts');
const { resumptionTurns } = await import('../../src/pace/resumption-turns.ts');
const { slotWaits } = await import('../../src/pace/slot-waits.ts');
const { range } = await import('../harness/relay/numbered-messages.ts');
const { NEW_MESSAGES, startApart, startCrowd } = await import('../harness/relay/resumption-crowd.ts');

beforeAll(() => void jest.useFakeTimers());
afterAll(() => void jest.useRealTimers());

const RATE = { limit: 5, windowMs: 1000, maxWaitMs: 10_000 };
const ALWAYS = new AbortController().signal;
const BOT = 'acme/helper';

/** Lets this much time pass; resolves with what `work` resolves with by then. */
async function inTime<T>(ms: number, work: Promise<T>): Promise<T> {
  await jest.advanceTimersByTimeAsync(ms);
  return work;
}

describe('300 resumptions', () => {
  test.each([1, 20])(
    'let 20 new messages of %d users start in time, and take every second slot at most',
    async (newUsers) => {
      const crowd = startCrowd({ instances: [memoryBudgets(withJitterMargin(RATE))], rate: RATE, newUsers });
      const { refused, lastNewMs, resumptions, messages } = await inTime(15_000, crowd);
      expect([refused, messages]).toEqual([0, NEW_MESSAGES]);
      expect(lastNewMs).toBeLessThan(RATE.maxWaitMs);
      expect(resumptions).toBeGreaterThan(0);
      expect(resumptions).toBeLessThanOrEqual(messages);
    },
  );

  test('use nine of ten slots that messages get elsewhere, if nobody else waits', async () => {
    const budgets = [memoryBudgets(withJitterMargin(RATE))];
    const { resumptions, messages } = await inTime(10_100, startApart(budgets, RATE, 10));
    expect(messages).toBe(50);
    expect(resumptions).toBeGreaterThanOrEqual(0.9 * messages);
  });
});

describe('resumptions of several users', () => {
  test.each([
    ['user', [...'aaaabbc'].map((user) => ({ user })), 'abcabaa'],
    [
      'address if they are guests',
      [...'aabcd'].map((user) => ({ user, address: user === 'd' ? 'there' : 'here' })),
      'adbca',
    ],
  ])('are served in turn by %s', async (_by, all, served) => {
    const rate = { ...RATE, limit: 1 };
    const takeTurn = resumptionTurns(memoryBudgets(rate), rate);
    let order = '';
    const turns = all.map(async (holders) => {
      await takeTurn({ endpoint: BOT, holders }, ALWAYS);
      order += holders.user;
    });
    await inTime(60_000, Promise.all(turns));
    expect(order).toBe(served);
  });
});

describe('live streams', () => {
  const rate = { limit: 1, windowMs: 1000, maxWaitMs: 60_000 };
  const budgets = memoryBudgets(rate);
  const live = resumptionTurns(budgets, rate, LIVE_YIELD_MS);
  const resume = resumptionTurns(budgets, rate);
  const { take } = slotWaits(budgets, rate);
  let order = '';
  const turn = async (kind: 'l' | 'r', n: number) => {
    const takeTurn = kind === 'l' ? live : resume;
    await takeTurn({ endpoint: BOT, holders: { user: `${kind}-${n}` } }, ALWAYS);
    order += kind;
  };
  const message = async () => {
    await take({ endpoint: BOT, holders: ['user'] }, ALWAYS);
    order += 'm';
  };

  test('go after the resumptions of messages', async () => {
    order = '';
    await inTime(0, turn('l', 0));
    const all = [...range(2).map((n) => turn('l', n)), ...range(2).map((n) => turn('r', n))];
    await inTime(60_000, Promise.all(all));
    expect(order).toBe('lrrll');
  });

  test('take every second slot at most while messages wait, and all others after them', async () => {
    order = '';
    await inTime(0, message());
    const all = [...range(6).map((n) => turn('l', n)), ...range(6).map(message)];
    await inTime(60_000, Promise.all(all));
    expect(order).toMatch(/^m(l?m){6}l+$/);
    expect(order.slice(0, order.lastIndexOf('m'))).toContain('l');
  });
});

describe('a message', () => {
  /** How many of 100 messages of others start between the arrival of one message and its start. */
  async function delayBy(others: (n: number) => string[], own: string[]): Promise<number> {
    const { take } = slotWaits(memoryBudgets({ ...RATE, limit: 2 }), {
      ...RATE,
      limit: 2,
      maxWaitMs: 60_000,
    });
    let started = 0;
    const all = range(100).map((n) =>
      Promise.resolve(take({ endpoint: BOT, holders: others(n) }, ALWAYS)).then(() => started++),
    );
    await jest.advanceTimersByTimeAsync(1500);
    const before = started;
    const slot = Promise.resolve(take({ endpoint: BOT, holders: own }, ALWAYS)).then(() => started - before);
    await inTime(60_000, Promise.all(all));
    return slot;
  }

  test.each<[string, (n: number) => string[], string[]]>([
    ['100 messages of another user', () => ['ann'], ['ben']],
    ['100 messages of 20 guests at another address', (n) => [`guest-${n % 20}`, 'here'], ['ben', 'there']],
    ['100 messages of a guest with 20 addresses', (n) => ['ann', `address-${n % 20}`], ['ben', 'there']],
  ])('is delayed by two slots at most by %s', async (_others, others, own) => {
    expect(await delayBy(others, own)).toBeLessThanOrEqual(2);
  });

  test('of a guest is delayed by four slots at most by a greedy guest at its address', async () => {
    // The one that starts, two with future slots, and the next in the queue of the address.
    expect(await delayBy(() => ['greedy', 'here'], ['ben', 'here'])).toBeLessThanOrEqual(4);
  });

  test('is told the time until all slots are free as from its own start', async () => {
    const { take } = slotWaits(memoryBudgets({ ...RATE, limit: 1 }), { ...RATE, limit: 1 });
    const request = { endpoint: BOT, holders: ['ann'] };
    await take(request, ALWAYS);
    const { slot, reservation } = await inTime(1001, Promise.resolve(take(request, ALWAYS)));
    expect([slot?.ticket, reservation.resetMs]).toEqual([reservation.ticket, 999]);
  });
});
