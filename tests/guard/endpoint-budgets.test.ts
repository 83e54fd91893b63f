import { afterAll, afterEach, beforeAll, beforeEach, describe, expect, jest, test } from '@jest/globals';
import {
  type EndpointBudgets,
  JITTER_MS,
  type Rate,
  type Reservation,
  withJitterMargin,
} from '../../src/pace/budgets.ts';
import { memoryBudgets } from '../../src/pace/memory-budgets.ts';
import { redisBudgets } from '../../src/pace/redis-budgets.ts';
import type { Redis } from '../../src/storage/redis.ts';
import {
  connected,
  describeWithRedis,
  type RedisServer,
  startRedis,
  stopRedis,
} from '../harness/redis/redis.ts';

const RATE = { limit: 5, windowMs: 1_000_000 };
const BOT = 'acme/helper';

/** The time of the test clock in ms, which changes only when a test sets it. */
let now = 0;

/** Runs scripts on the clock above instead of Redis's own. */
function onTestClock(redis: Redis): Redis {
  return {
    ...redis,
    script(lua) {
      const clocked = lua
        .replace("redis.call('TIME')", '{ ARGV[#ARGV], 0 }')
        .replace('clock[1] * 1000000', 'clock[1]');
      if (clocked === lua) throw new Error('the script asks for the time in another way');
      const run = redis.script(clocked);
      return (keys, args) => run(keys, [...args, String(Math.round(now * 1000))]);
    },
  };
}

let server: RedisServer;
let redis: Redis | undefined;

/** Tests for every implementation of the budgets. */
function contract(make: (rate: Rate) => EndpointBudgets): void {
  let budgets: EndpointBudgets;
  beforeEach(() => {
    now = 0;
    budgets = make(RATE);
  });

  const reserve = (holder: string, maxWaitMs = 10_000_000, endpoint = BOT) =>
    budgets.reserve({ endpoint, holders: [holder], maxWaitMs });
  /** Reserves this many slots, each for another holder; returns their tickets and times. */
  async function take(count: number, endpoint = BOT) {
    const taken: { ticket: string; at: number }[] = [];
    for (let n = 0; n < count; n++) {
      const { ticket, waitMs } = await reserve(`somebody-${now}-${n}`, undefined, endpoint);
      taken.push({ ticket, at: now + waitMs });
    }
    return taken;
  }
  const timesOf = (taken: { at: number }[]) => taken.map(({ at }) => at);

  test('grants as many slots as fit into a window, and the next ones a window later', async () => {
    const first = await take(2);
    now = 300;
    const all = [...first, ...(await take(10))];
    const W = RATE.windowMs;
    expect(timesOf(all)).toEqual([0, 0, 300, 300, 300, W, W, W + 300, W + 300, W + 300, 2 * W, 2 * W]);
    expect(new Set(all.map(({ ticket }) => ticket)).size).toBe(12);
  });

  test('refuses a request that would wait too long, and does not record it', async () => {
    await take(5);
    now = 1000;
    for (let n = 0; n < 20; n++) {
      expect(await reserve('patient', RATE.windowMs - 1001)).toMatchObject({
        state: 'refused',
        waitMs: RATE.windowMs - 1000,
      });
    }
    expect(await reserve('patient', RATE.windowMs - 1000)).toMatchObject({
      state: 'granted',
      waitMs: RATE.windowMs - 1000,
    });
  });

  test('tells how many slots are left and when all are free again', async () => {
    expect(await reserve('a')).toMatchObject({ remaining: 4, resetMs: RATE.windowMs });
    now = 400;
    await take(3);
    expect(await reserve('b')).toMatchObject({ remaining: 0, resetMs: RATE.windowMs });
    expect(await reserve('c')).toMatchObject({ remaining: 0, resetMs: 2 * RATE.windowMs - 400 });
    now = 500;
    expect(await reserve('d', 0)).toMatchObject({ remaining: 0, resetMs: 2 * RATE.windowMs - 500 });
    now = 5 * RATE.windowMs;
    expect(await reserve('e')).toMatchObject({ remaining: 4, resetMs: RATE.windowMs });
  });

  test('grants one holder two future slots, which does not delay other holders', async () => {
    await take(4);
    now = 10;
    const greedy = [];
    for (let n = 0; n < 5; n++) greedy.push(await reserve('greedy'));
    const W = RATE.windowMs;
    expect(greedy.map(({ state, waitMs }) => [state, waitMs])).toEqual([
      ['granted', 0],
      ['granted', W - 10],
      ['granted', W - 10],
      ['share_taken', W - 10],
      ['share_taken', W - 10],
    ]);
    // The name of this holder is a prefix of the other's.
    expect(await reserve('greed')).toMatchObject({ state: 'granted', waitMs: W - 10 });
    now = W;
    // The time of both has come, and there is room for one more now.
    expect(await reserve('greedy')).toMatchObject({ state: 'granted', waitMs: 0 });
    expect(await reserve('greedy')).toMatchObject({ state: 'granted', waitMs: 10 });
    expect(await reserve('greedy')).toMatchObject({ state: 'granted', waitMs: W });
    expect(await reserve('greedy')).toMatchObject({ state: 'share_taken', waitMs: 10 });
    expect(await reserve('greedy', W - 1)).toMatchObject({ state: 'refused', waitMs: W });
  });

  test('lets a message start when its slot has come, and not before', async () => {
    const [sixth] = (await take(6)).slice(-1);
    now = 999_999;
    expect(await budgets.start(BOT, sixth?.ticket ?? '')).toBe(1);
    now = 1_000_000;
    expect(await budgets.start(BOT, sixth?.ticket ?? '')).toBe(0);
  });

  test('counts a message from its start: one that starts 40 ms late delays the message a window later by 40 ms', async () => {
    const taken = await take(11);
    const tickets = taken.map(({ ticket }) => ticket);
    now = 1_000_040;
    for (const ticket of tickets.slice(5, 10)) expect(await budgets.start(BOT, ticket)).toBe(0);
    now = 2_000_000;
    expect(await budgets.start(BOT, tickets[10] ?? '')).toBe(40);
    now = 2_000_040;
    expect(await budgets.start(BOT, tickets[10] ?? '')).toBe(0);
  });

  test('counts a delayed message from its second start', async () => {
    const [first, , , , , sixth] = await take(6);
    now = 400_000;
    expect(await budgets.start(BOT, first?.ticket ?? '')).toBe(0);
    now = 1_000_000;
    expect(await budgets.start(BOT, sixth?.ticket ?? '')).toBe(0);
    for (const n of [1, 2, 3]) expect([n, await reserve(`early-${n}`)]).toMatchObject([n, { waitMs: 0 }]);
    expect(await reserve('late')).toMatchObject({ waitMs: 400_000 });
  });

  test('counts a message that was delayed for more than a window, and makes it wait for those that started since', async () => {
    const tickets = (await take(7)).map(({ ticket }) => ticket);
    now = 1_100_000;
    for (const ticket of tickets.slice(5)) expect(await budgets.start(BOT, ticket)).toBe(0);
    now = 1_500_000;
    const waits = [];
    for (const ticket of tickets.slice(0, 5)) waits.push(await budgets.start(BOT, ticket));
    expect(waits).toEqual([0, 0, 0, 600_000, 600_000]);
    expect((await take(1)).map(({ at }) => at)).toEqual([2_500_000]);
  });

  test('counts a message from when it was sent, whether there was room or not', async () => {
    const [first, , , , , sixth] = await take(6);
    now = 400_000;
    await budgets.sent(BOT, first?.ticket ?? '');
    now = 1_000_000;
    expect(await budgets.start(BOT, sixth?.ticket ?? '')).toBe(0);
    for (const n of [1, 2, 3]) expect([n, await reserve(`early-${n}`)]).toMatchObject([n, { waitMs: 0 }]);
    expect(await reserve('late')).toMatchObject({ waitMs: 400_000 });
  });

  test('does not delay a late message because of those that wait behind it', async () => {
    const tickets = (await take(15)).map(({ ticket }) => ticket);
    now = 1_000_040;
    for (const ticket of tickets.slice(5, 10)) expect(await budgets.start(BOT, ticket)).toBe(0);
  });

  test('gives a cancelled slot to the next request', async () => {
    const taken = await take(11);
    expect(taken[7]?.at).toBe(RATE.windowMs);
    await budgets.cancel(BOT, taken[7]?.ticket ?? '');
    expect(timesOf(await take(2))).toEqual([RATE.windowMs, 2 * RATE.windowMs]);
  });

  test('does not grant a free slot if a later window would be too full', async () => {
    const tickets = (await take(10)).map(({ ticket }) => ticket);
    await budgets.cancel(BOT, tickets[0] ?? '');
    // Its slot is free: there are four slots at 0.
    now = 1;
    expect(timesOf(await take(1))).toEqual([2 * RATE.windowMs]);
  });

  test('starts no message during a pause that the service asked for, and the refused message first after it', async () => {
    const tickets = (await take(8)).map(({ ticket }) => ticket);
    now = 100;
    await budgets.pause(BOT, 2_000_000, tickets[4] ?? '');
    const waits = [];
    for (const ticket of tickets.slice(4)) waits.push(await budgets.start(BOT, ticket));
    expect(waits).toEqual([2_000_000, 2_000_000, 2_000_000, 2_000_000]);
    expect(timesOf(await take(2))).toEqual([2_000_100, 3_000_100]);
    expect(await reserve('hasty', 1_999_999)).toMatchObject({ state: 'refused' });
    now = 2_000_100;
    for (const ticket of tickets.slice(4)) expect(await budgets.start(BOT, ticket)).toBe(0);
  });

  test('moves all slots behind a pause, and gives none to a refused message that waits no longer', async () => {
    const tickets = (await take(10)).map(({ ticket }) => ticket);
    now = 100;
    await budgets.pause(BOT, 2_000_000);
    const waits = [];
    for (const ticket of tickets.slice(5)) waits.push(await budgets.start(BOT, ticket));
    expect(waits).toEqual([2_000_000, 2_000_000, 2_000_000, 2_000_000, 2_000_000]);
    expect((await take(1)).map(({ at }) => at - now)).toEqual([2_000_000 + RATE.windowMs]);
  });

  test('counts a refused message that waits no longer from its start, if the pause is short', async () => {
    await take(5);
    now = 100;
    await budgets.pause(BOT, 200);
    expect((await take(1)).map(({ at }) => at)).toEqual([RATE.windowMs]);
  });

  test('grants one future slot to a holder that asks for no more, and free slots besides', async () => {
    const ask = () =>
      budgets.reserve({ endpoint: BOT, holders: ['modest'], maxWaitMs: 10_000_000, maxFutureSlots: 1 });
    await take(3);
    const answers = [];
    for (let n = 0; n < 4; n++) answers.push(await ask());
    expect(answers.map(({ state, waitMs }) => [state, waitMs])).toEqual([
      ['granted', 0],
      ['granted', 0],
      ['granted', RATE.windowMs],
      ['share_taken', RATE.windowMs],
    ]);
    expect(await reserve('modest')).toMatchObject({ state: 'granted', waitMs: RATE.windowMs });
  });

  test('is paused also if no message waits, and a shorter pause does not shorten a longer one', async () => {
    const [one, two] = await take(2);
    await budgets.pause(BOT, 3_000_000, one?.ticket ?? '');
    await budgets.pause(BOT, 1_000_000, two?.ticket ?? '');
    now = 1_500_000;
    expect(timesOf(await take(1))).toEqual([3_000_000]);
  });

  test('starts a message whose slot it has forgotten', async () => {
    await take(4);
    expect(await budgets.start(BOT, '1 somebody lost')).toBe(0);
    expect(timesOf(await take(1))).toEqual([RATE.windowMs]);
  });

  test('grants a free slot also to a holder with two future slots', async () => {
    const [first] = await take(5);
    const two = [await reserve('greedy'), await reserve('greedy')];
    expect(two.map(({ waitMs }) => waitMs)).toEqual([RATE.windowMs, RATE.windowMs]);
    await budgets.cancel(BOT, first?.ticket ?? '');
    expect(await reserve('greedy')).toMatchObject({ state: 'granted', waitMs: 0 });
    expect(await reserve('greedy')).toMatchObject({ state: 'share_taken', waitMs: RATE.windowMs });
  });

  test('grants each of several holders two future slots', async () => {
    await take(5);
    const ask = async (...holders: string[]) => {
      const { state, waitMs } = await budgets.reserve({ endpoint: BOT, holders, maxWaitMs: 10_000_000 });
      return [state, waitMs];
    };
    const W = RATE.windowMs;
    expect(await ask('ann', 'address')).toEqual(['granted', W]);
    expect(await ask('ben', 'address')).toEqual(['granted', W]);
    // The address has its two slots, but this guest has none.
    expect(await ask('cat', 'address')).toEqual(['share_taken', W]);
    expect(await ask('ann', 'elsewhere')).toEqual(['granted', W]);
    expect(await ask('ann', 'nowhere')).toEqual(['share_taken', W]);
    expect(await ask('dan')).toEqual(['granted', W]);
    // Holders are compared as whole names.
    expect(await ask('addres', 'ddress')).toEqual(['granted', W]);
  });

  test('tells a message to wait until all of its holders may have another slot', async () => {
    await take(4);
    now = 10;
    await take(2);
    now = 20;
    await budgets.reserve({ endpoint: BOT, holders: ['a', 'x'], maxWaitMs: 10_000_000 });
    await budgets.reserve({ endpoint: BOT, holders: ['a', 'y'], maxWaitMs: 10_000_000 });
    await take(1);
    await budgets.reserve({ endpoint: BOT, holders: ['b', 'y'], maxWaitMs: 10_000_000 });
    await budgets.reserve({ endpoint: BOT, holders: ['c', 'z'], maxWaitMs: 10_000_000 });
    await budgets.reserve({ endpoint: BOT, holders: ['d', 'z'], maxWaitMs: 10_000_000 });
    const both = await budgets.reserve({ endpoint: BOT, holders: ['a', 'z'], maxWaitMs: 10_000_000 });
    expect(both).toMatchObject({ state: 'share_taken', waitMs: 2 * RATE.windowMs - 20 });
  });

  test('is separate for each endpoint', async () => {
    await take(5);
    expect(timesOf(await take(5, 'acme/other'))).toEqual([0, 0, 0, 0, 0]);
    expect(timesOf(await take(1))).toEqual([RATE.windowMs]);
  });
}

test('a rate gets a margin for the jitter on the way to the service', () => {
  expect(JITTER_MS).toBeGreaterThan(0);
  expect(withJitterMargin({ limit: 5, windowMs: 1000 })).toEqual({ limit: 5, windowMs: 1000 + JITTER_MS });
});

describe('a budget in memory', () => {
  contract((rate) => memoryBudgets(rate, () => now));
});

describeWithRedis('budgets in Redis', () => {
  beforeAll(async () => {
    server = await startRedis();
    redis = await connected(server.url, 500);
  });
  const forget = async () => void (await server.command('FLUSHALL'));
  afterEach(forget);
  afterEach(() => void jest.restoreAllMocks());
  afterAll(() => {
    redis?.close();
    stopRedis();
  });

  describe('each of them, on a test clock,', () => {
    contract((rate) => redisBudgets(onTestClock(redis as Redis), rate));
  });

  test('give the same answers as those in memory, for random calls', async () => {
    let state = 7;
    const random = (below: number) => {
      state = (state * 48271) % 2147483647;
      return state % below;
    };
    for (let round = 0; round < 15; round++) {
      now = 0;
      await server.command('FLUSHALL');
      const rate = { limit: 1 + random(6), windowMs: 1_000_000 };
      const pair = [memoryBudgets(rate, () => now), redisBudgets(onTestClock(redis as Redis), rate)] as const;
      const tickets: [string, string][] = [];
      for (let step = 0; step < 60; step++) {
        now += random(4) === 0 ? random(700_000) : random(20_000);
        const [one = '', other = ''] = tickets[random(tickets.length + 1)] ?? [];
        const kind = random(10);
        const [mine, theirs] = await Promise.all(
          pair.map(async (budgets, i) => {
            const ticket = i === 0 ? one : other;
            if (kind < 6) {
              const request = {
                endpoint: BOT,
                holders: [`h${kind % 3}`, `a${step % 2}`],
                maxWaitMs: 3_000_000,
                maxFutureSlots: 1 + (step % 3),
              };
              return budgets.reserve(request);
            }
            if (!ticket) return 'nothing';
            if (kind < 8) return budgets.start(BOT, ticket);
            if (kind === 8) return step % 2 ? budgets.cancel(BOT, ticket) : budgets.sent(BOT, ticket);
            return budgets.pause(BOT, 1000 * (1 + step), step % 5 === 0 ? undefined : ticket);
          }),
        );
        const visible = (answer: unknown) =>
          typeof answer === 'object' ? { ...answer, ticket: undefined } : answer;
        expect([round, step, kind, visible(theirs)]).toEqual([round, step, kind, visible(mine)]);
        const [granted, same] = [mine, theirs].map((one) => one as Partial<Reservation> | undefined);
        if (granted?.state === 'granted') tickets.push([granted.ticket ?? '', same?.ticket ?? '']);
      }
    }
  });

  describe('on a clock that is set back', () => {
    let budgets: EndpointBudgets;
    const START = 5_000_000;
    const BACK = 3_000_000;
    beforeEach(() => {
      now = START;
      budgets = redisBudgets(onTestClock(redis as Redis), RATE);
    });
    const ask = async (holder: string, maxWaitMs = 10_000_000) =>
      budgets.reserve({ endpoint: BOT, holders: [holder], maxWaitMs });

    test('forget no message, and let no message wait longer than before', async () => {
      for (let n = 0; n < 5; n++) await ask(`h${n}`);
      const { ticket } = await ask('waiting');
      now = START - BACK;
      for (const n of [1, 2]) expect([n, await ask('h', 0)]).toMatchObject([n, { waitMs: RATE.windowMs }]);
      expect(await ask('h')).toMatchObject({
        waitMs: RATE.windowMs,
        remaining: 0,
        resetMs: 2 * RATE.windowMs,
      });
      now += RATE.windowMs - 1;
      expect(await budgets.start(BOT, ticket)).toBe(1);
      now += 1;
      expect(await budgets.start(BOT, ticket)).toBe(0);
    });

    test('stay paused for as long as the service asked for', async () => {
      const { ticket } = await ask('h');
      await budgets.pause(BOT, 2_000_000, ticket);
      now = START - BACK;
      expect(await ask('h')).toMatchObject({ waitMs: 2_000_000 });
      expect(await budgets.start(BOT, ticket)).toBe(2_000_000);
    });

    test('stay paused for as long also if no message waits', async () => {
      const { ticket } = await ask('h');
      await budgets.pause(BOT, 2_000_000, ticket);
      await budgets.cancel(BOT, ticket);
      now = START - BACK;
      expect(await ask('h', 0)).toMatchObject({ state: 'refused', waitMs: 2_000_000 });
      const key = `bot-relay:{budget:${BOT}}:state`;
      expect(Number(await server.command('PTTL', key))).toBeGreaterThan(1_900_000);
    });
  });

  test('start nothing for a window after Redis was lost, but for 5 s at most', async () => {
    // Whole ms, so that nothing is rounded up.
    const backAt = Math.ceil(performance.now()) - 500;
    jest.spyOn(performance, 'now').mockReturnValue(backAt + 500);
    const back = { ...onTestClock(redis as Redis), backAt: () => backAt };
    now = 0;
    for (const [windowMs, held] of [
      [2000, 1500],
      [1_000_000, 4500],
    ] as const) {
      const budgets = redisBudgets(back, { limit: 5, windowMs });
      const endpoint = `acme/${windowMs}`;
      const { waitMs } = await budgets.reserve({ endpoint, holders: ['h'], maxWaitMs: 10_000 });
      for (const wait of [waitMs, await budgets.start(endpoint, '1 somebody waiting')]) {
        expect(wait).toBeGreaterThan(held - 1000);
        expect(wait).toBeLessThanOrEqual(held);
      }
    }
  });

  const request = (holder: string, maxWaitMs = 0) => ({ endpoint: BOT, holders: [holder], maxWaitMs });

  test('are shared by all instances', async () => {
    const other = await connected(server.url, 500);
    const instances = [redis as Redis, other].map((one) =>
      redisBudgets(one, { limit: 5, windowMs: 600_000 }),
    );
    const asked = Array.from({ length: 12 }, (_, n) =>
      (instances[n % 2] as EndpointBudgets).reserve(request(`h${n}`)),
    );
    const states = (await Promise.all(asked)).map(({ state }) => state);
    other.close();
    expect(states.filter((state) => state === 'granted')).toHaveLength(5);
  });

  test('work again after SCRIPT FLUSH and after Redis has forgotten everything', async () => {
    const budgets = redisBudgets(redis as Redis, { limit: 1, windowMs: 600_000 });
    await budgets.reserve(request('a'));
    await server.command('SCRIPT', 'FLUSH');
    expect(await budgets.reserve(request('b'))).toMatchObject({ state: 'refused' });
    await server.command('FLUSHALL');
    expect(await budgets.reserve(request('c'))).toMatchObject({ state: 'granted' });
  });
});
