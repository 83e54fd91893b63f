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
import { connected, describeWithRedis, type RedisServer, startRedis, stopRedis } from '../support/redis.ts';
import { sleep } from '../support/sleep.ts';
import { whileAwake } from '../support/while-awake.ts';

const RATE = { limit: 5, windowMs: 1_000_000 };
const BOT = 'acme/helper';

/** A pause; by default the relay believes all of it. */
const pause = (believedMs: number, askedMs = believedMs) => ({ believedMs, askedMs });

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
    expect((await budgets.start(BOT, sixth?.ticket ?? '')).waitMs).toBe(1);
    now = 1_000_000;
    expect((await budgets.start(BOT, sixth?.ticket ?? '')).waitMs).toBe(0);
  });

  test('counts a message from its start: one that starts 40 ms late delays the message a window later by 40 ms', async () => {
    const taken = await take(11);
    const tickets = taken.map(({ ticket }) => ticket);
    now = 1_000_040;
    for (const ticket of tickets.slice(5, 10)) expect((await budgets.start(BOT, ticket)).waitMs).toBe(0);
    now = 2_000_000;
    expect((await budgets.start(BOT, tickets[10] ?? '')).waitMs).toBe(40);
    now = 2_000_040;
    expect((await budgets.start(BOT, tickets[10] ?? '')).waitMs).toBe(0);
  });

  test('counts a delayed message from its second start', async () => {
    const [first, , , , , sixth] = await take(6);
    now = 400_000;
    expect((await budgets.start(BOT, first?.ticket ?? '')).waitMs).toBe(0);
    now = 1_000_000;
    expect((await budgets.start(BOT, sixth?.ticket ?? '')).waitMs).toBe(0);
    for (const n of [1, 2, 3]) expect([n, await reserve(`early-${n}`)]).toMatchObject([n, { waitMs: 0 }]);
    expect(await reserve('late')).toMatchObject({ waitMs: 400_000 });
  });

  test('counts a message that was delayed for more than a window, and makes it wait for those that started since', async () => {
    const tickets = (await take(7)).map(({ ticket }) => ticket);
    now = 1_100_000;
    for (const ticket of tickets.slice(5)) expect((await budgets.start(BOT, ticket)).waitMs).toBe(0);
    now = 1_500_000;
    const waits = [];
    for (const ticket of tickets.slice(0, 5)) waits.push((await budgets.start(BOT, ticket)).waitMs);
    expect(waits).toEqual([0, 0, 0, 600_000, 600_000]);
    expect((await take(1)).map(({ at }) => at)).toEqual([2_500_000]);
  });

  test('counts a message from when it was sent, whether there was room or not', async () => {
    const [first, , , , , sixth] = await take(6);
    now = 400_000;
    await budgets.sent(BOT, first?.ticket ?? '');
    now = 1_000_000;
    expect((await budgets.start(BOT, sixth?.ticket ?? '')).waitMs).toBe(0);
    for (const n of [1, 2, 3]) expect([n, await reserve(`early-${n}`)]).toMatchObject([n, { waitMs: 0 }]);
    expect(await reserve('late')).toMatchObject({ waitMs: 400_000 });
  });

  test('does not delay a late message because of those that wait behind it', async () => {
    const tickets = (await take(15)).map(({ ticket }) => ticket);
    now = 1_000_040;
    for (const ticket of tickets.slice(5, 10)) expect((await budgets.start(BOT, ticket)).waitMs).toBe(0);
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
    await budgets.penalize(BOT, tickets[4] ?? '', pause(2_000_000));
    const waits = [];
    for (const ticket of tickets.slice(4)) waits.push((await budgets.start(BOT, ticket)).waitMs);
    expect(waits).toEqual([2_000_000, 2_000_000, 2_000_000, 2_000_000]);
    expect(timesOf(await take(2))).toEqual([2_000_100, 3_000_100]);
    expect(await reserve('hasty', 1_999_999)).toMatchObject({ state: 'refused' });
    now = 2_000_100;
    for (const ticket of tickets.slice(4)) expect((await budgets.start(BOT, ticket)).waitMs).toBe(0);
  });

  test('moves all slots behind a pause, and gives none to a refused message that waits no longer', async () => {
    const tickets = (await take(10)).map(({ ticket }) => ticket);
    now = 100;
    await budgets.penalize(BOT, tickets[4] ?? '', { ...pause(2_000_000), withoutSlot: true });
    const waits = [];
    for (const ticket of tickets.slice(5)) waits.push((await budgets.start(BOT, ticket)).waitMs);
    expect(waits).toEqual([2_000_000, 2_000_000, 2_000_000, 2_000_000, 2_000_000]);
    expect((await take(1)).map(({ at }) => at - now)).toEqual([2_000_000 + RATE.windowMs]);
  });

  test('counts a refused message that waits no longer from its start, if the pause is short', async () => {
    const tickets = (await take(5)).map(({ ticket }) => ticket);
    now = 100;
    await budgets.penalize(BOT, tickets[4] ?? '', { ...pause(200), withoutSlot: true });
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
    await budgets.penalize(BOT, one?.ticket ?? '', pause(3_000_000));
    await budgets.penalize(BOT, two?.ticket ?? '', pause(1_000_000));
    now = 1_500_000;
    expect(timesOf(await take(1))).toEqual([3_000_000]);
  });

  describe('asked before it is certain that the message is sent', () => {
    const early = (holder: string) =>
      budgets.reserve({ endpoint: BOT, holders: [holder], maxWaitMs: 10_000_000, isEarly: true });

    test('grants a free slot as long as half of the budget stays free, and else records nothing', async () => {
      expect(await early('a')).toMatchObject({ state: 'granted', waitMs: 0, remaining: 4 });
      expect(await early('b')).toMatchObject({ state: 'granted', waitMs: 0, remaining: 3 });
      for (let n = 0; n < 20; n++) expect(await early(`c-${n}`)).toMatchObject({ state: 'refused' });
      expect(timesOf(await take(4))).toEqual([0, 0, 0, RATE.windowMs]);
      expect(await early('d')).toMatchObject({ state: 'refused', waitMs: RATE.windowMs });
    });

    test('has its whole budget again at once when such slots were given back', async () => {
      for (const ticket of [(await early('a')).ticket, (await early('b')).ticket])
        await budgets.cancel(BOT, ticket);
      expect(timesOf(await take(6))).toEqual([0, 0, 0, 0, 0, RATE.windowMs]);
    });

    test('never grants the only slot of a window', async () => {
      const single = make({ ...RATE, limit: 1 });
      const request = { endpoint: 'acme/single', holders: ['a'], maxWaitMs: 0 };
      expect(await single.reserve({ ...request, isEarly: true })).toMatchObject({ state: 'refused' });
      expect(await single.reserve(request)).toMatchObject({ state: 'granted', waitMs: 0 });
    });

    test('grants no slot in a pause, and puts nobody on trial', async () => {
      const [one] = await take(1);
      await budgets.penalize(BOT, one?.ticket ?? '', pause(2 * RATE.windowMs, 9 * RATE.windowMs));
      now = RATE.windowMs;
      expect(await early('a')).toMatchObject({ state: 'refused' });
      now = 4 * RATE.windowMs;
      expect(await early('b')).toMatchObject({ state: 'refused' });
      expect(await reserve('c')).toMatchObject({ state: 'granted', waitMs: 0, onTrial: true });
    });
  });

  test('starts a message whose slot it has forgotten', async () => {
    await take(4);
    expect((await budgets.start(BOT, '1 somebody lost')).waitMs).toBe(0);
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

  test('reserves and pauses in time that does not grow with the square of the waiting messages', async () => {
    const costs = [];
    for (const count of [100, 800]) {
      const endpoint = `acme/${count}`;
      const long = { endpoint, maxWaitMs: 1e12 };
      let ticket = '';
      for (let n = 0; n < count; n++) ({ ticket } = await budgets.reserve({ ...long, holders: [`${n}`] }));
      let best = Number.POSITIVE_INFINITY;
      for (let n = 0; n < 10; n++) {
        const before = performance.now();
        await budgets.reserve({ ...long, holders: [`late-${n}`] });
        await budgets.penalize(endpoint, ticket, pause(1000));
        best = Math.min(best, performance.now() - before);
      }
      costs.push(best);
    }
    // 8 times as many: 8 times as long, not 64 times.
    expect((costs[1] as number) / (costs[0] as number)).toBeLessThan(20);
  }, 60_000);

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

  describe('after a pause of which only a part is believed', () => {
    const BELIEVED = 2_000_000;
    const ASKED = 50_000_000;
    const TRIAL = 60_000;
    let tickets: string[];
    beforeEach(async () => {
      tickets = (await take(8)).map(({ ticket }) => ticket);
      now = 100;
      await budgets.penalize(BOT, tickets[0] ?? '', pause(BELIEVED, ASKED));
      now += BELIEVED;
    });
    const start = (n: number) => budgets.start(BOT, tickets[n] ?? '');

    test('puts one message on trial, and the others wait', async () => {
      expect(await start(5)).toEqual({ waitMs: 0, trialLeftMs: 0, onTrial: true });
      now += 1000;
      for (const n of [0, 6, 7])
        expect(await start(n)).toEqual({ waitMs: 250, trialLeftMs: TRIAL - 1000, onTrial: false });
      expect(await reserve('new')).toMatchObject({
        state: 'granted',
        waitMs: 250,
        trialLeftMs: TRIAL - 1000,
      });
      expect(await reserve('hasty', 0)).toMatchObject({ state: 'refused', trialLeftMs: TRIAL - 1000 });
      now += 250;
      expect(await start(6)).toMatchObject({ waitMs: 250, onTrial: false });
      // It is still on trial when it starts again, and with its next key.
      expect(await start(5)).toEqual({ waitMs: 0, trialLeftMs: 0, onTrial: true });
      expect(await budgets.start(BOT, `${tickets[5]}+`)).toEqual({
        waitMs: 0,
        trialLeftMs: 0,
        onTrial: true,
      });
    });

    test('may put a new message on trial', async () => {
      for (const ticket of tickets) await budgets.cancel(BOT, ticket);
      const first = await reserve('new');
      expect(first).toMatchObject({ state: 'granted', waitMs: 0, trialLeftMs: 0, onTrial: true });
      expect(await reserve('newer')).toMatchObject({ waitMs: 250, trialLeftMs: TRIAL, onTrial: false });
      await budgets.judged(BOT, first.ticket, true);
      expect(await reserve('newest')).toMatchObject({ waitMs: 0, trialLeftMs: 0, onTrial: false });
    });

    test('starts all messages once the one on trial is accepted', async () => {
      await start(5);
      await budgets.judged(BOT, tickets[5] ?? '', true);
      now += 1;
      for (const n of [6, 7]) expect(await start(n)).toEqual({ waitMs: 0, trialLeftMs: 0, onTrial: false });
    });

    test('puts the next message on trial once the one on trial is refused, is cancelled or takes too long', async () => {
      await start(5);
      await budgets.judged(BOT, tickets[5] ?? '', false);
      expect(await start(6)).toMatchObject({ waitMs: 0, onTrial: true });
      expect(await start(7)).toMatchObject({ waitMs: 250, onTrial: false });
      await budgets.cancel(BOT, tickets[6] ?? '');
      now += 250;
      expect(await start(7)).toMatchObject({ waitMs: 0, onTrial: true });
      now += TRIAL - 1;
      expect(await start(0)).toMatchObject({ waitMs: 250, trialLeftMs: 1 });
      now += 250;
      expect(await start(0)).toMatchObject({ waitMs: 0, onTrial: true });
      // Too late: another message is on trial.
      await budgets.judged(BOT, tickets[7] ?? '', true);
      expect(await reserve('new')).toMatchObject({ waitMs: 250, trialLeftMs: TRIAL });
    });

    test('starts nothing during the next pause if the one on trial is refused, and one message after it', async () => {
      await start(5);
      await budgets.penalize(BOT, tickets[5] ?? '', pause(3000));
      expect(await start(6)).toEqual({ waitMs: 3000, trialLeftMs: 0, onTrial: false });
      now += 3000;
      expect(await start(6)).toMatchObject({ waitMs: 0, onTrial: true });
      expect(await start(7)).toMatchObject({ onTrial: false, trialLeftMs: TRIAL });
    });

    test('ignores the result of a message that was sent before the pause', async () => {
      await start(5);
      await budgets.judged(BOT, tickets[1] ?? '', true);
      await budgets.cancel(BOT, tickets[2] ?? '');
      await budgets.penalize(BOT, tickets[3] ?? '', pause(1000));
      // The message on trial was sent before that refusal.
      await budgets.judged(BOT, tickets[5] ?? '', true);
      now += 1000;
      expect(await start(6)).toMatchObject({ waitMs: 0, onTrial: true });
    });

    test('starts all messages once the time that the service asked for is over', async () => {
      now = ASKED + 100;
      for (const n of [6, 7]) expect(await start(n)).toEqual({ waitMs: 0, trialLeftMs: 0, onTrial: false });
    });
  });

  test('ends a trial, judged or not, when the time that the service asked for is over', async () => {
    const tickets = (await take(4)).map(({ ticket }) => ticket);
    await budgets.penalize(BOT, tickets[0] ?? '', pause(1000, 1200));
    now = 1000;
    expect(await budgets.start(BOT, tickets[1] ?? '')).toMatchObject({ waitMs: 0, onTrial: true });
    now = 1100;
    expect(await budgets.start(BOT, tickets[2] ?? '')).toMatchObject({ trialLeftMs: 100, onTrial: false });
    now = 1201;
    // Its connection took long: it starts again, and is no longer on trial.
    expect(await budgets.start(BOT, tickets[1] ?? '')).toEqual({ waitMs: 0, trialLeftMs: 0, onTrial: false });
    expect(await reserve('new')).toMatchObject({
      state: 'granted',
      waitMs: 0,
      trialLeftMs: 0,
      onTrial: false,
    });
  });

  test('starts all messages after a pause that is believed whole', async () => {
    const tickets = (await take(3)).map(({ ticket }) => ticket);
    await budgets.penalize(BOT, tickets[0] ?? '', pause(5000));
    now = 5000;
    for (const ticket of tickets)
      expect(await budgets.start(BOT, ticket)).toEqual({ waitMs: 0, trialLeftMs: 0, onTrial: false });
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
    redis = await connected(server.url);
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
        const kind = random(11);
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
            if (kind === 9) return budgets.judged(BOT, ticket, step % 3 > 0);
            const asked = pause(1000 * (1 + step), 1000 * (1 + step) + 200_000 * (step % 4));
            return budgets.penalize(BOT, ticket, { ...asked, withoutSlot: step % 5 === 0 });
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
      expect((await budgets.start(BOT, ticket)).waitMs).toBe(1);
      now += 1;
      expect((await budgets.start(BOT, ticket)).waitMs).toBe(0);
    });

    test('stay paused for as long as the service asked for', async () => {
      const { ticket } = await ask('h');
      await budgets.penalize(BOT, ticket, pause(2_000_000));
      now = START - BACK;
      expect(await ask('h')).toMatchObject({ waitMs: 2_000_000 });
      expect((await budgets.start(BOT, ticket)).waitMs).toBe(2_000_000);
    });

    test('keep a message on trial, and the others waiting for it, no longer than before', async () => {
      const [first, second] = [await ask('h'), await ask('h')];
      await budgets.penalize(BOT, first.ticket, pause(0, 10_000_000));
      expect(await budgets.start(BOT, first.ticket)).toMatchObject({ onTrial: true });
      now = START - BACK;
      expect(await budgets.start(BOT, second.ticket)).toMatchObject({ waitMs: 250, trialLeftMs: 60_000 });
      await budgets.judged(BOT, first.ticket, true);
      now += 250;
      expect(await budgets.start(BOT, second.ticket)).toMatchObject({ waitMs: 0, onTrial: false });
    });

    test('stay paused for as long also if no message waits', async () => {
      const { ticket } = await ask('h');
      await budgets.penalize(BOT, ticket, pause(2_000_000));
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
      for (const wait of [waitMs, (await budgets.start(endpoint, '1 somebody waiting')).waitMs]) {
        expect(wait).toBeGreaterThan(held - 1000);
        expect(wait).toBeLessThanOrEqual(held);
      }
    }
  });

  test('are shared with an instance of the previous version, which knows one holder and no trial', async () => {
    now = 5_000_000;
    const [slots, state] = [`bot-relay:{budget:${BOT}}:slots`, `bot-relay:{budget:${BOT}}:state`];
    const ticket = (holder: string, n: number) => `${String(now * 1000).padStart(16, '0')} ${holder} ${n}`;
    for (const n of [0, 1, 2, 3, 4])
      await server.command('ZADD', slots, String(now * 1000), ticket('one', n));
    const later = String((now + RATE.windowMs) * 1000);
    for (const n of [5, 6]) await server.command('ZADD', slots, later, ticket('user', n));
    await server.command('HSET', state, 'paused-until', '0', 'seen-at', String(now * 1000));
    const budgets = redisBudgets(onTestClock(redis as Redis), RATE);
    const ask = (...holders: string[]) => budgets.reserve({ endpoint: BOT, holders, maxWaitMs: 10_000_000 });
    expect(await ask('user')).toMatchObject({ state: 'share_taken', waitMs: RATE.windowMs });
    const mine = await ask('other', 'address');
    expect(mine).toMatchObject({ state: 'granted', waitMs: RATE.windowMs });
    // The previous version reads the time in 16 digits and the first holder, with a space after each.
    expect(mine.ticket).toMatch(/^\d{16} other \S.*$/);
    await budgets.penalize(BOT, mine.ticket, pause(1000));
    expect(await server.command('HMGET', state, 'paused-until', 'seen-at')).toEqual([
      String((now + 1000) * 1000),
      String(now * 1000),
    ]);
  });

  test('remember a trial for as long as the service has asked to wait, and no longer', async () => {
    const budgets = redisBudgets(redis as Redis, { limit: 5, windowMs: 100 });
    const { ticket } = await budgets.reserve(request('a'));
    await budgets.penalize(BOT, ticket, pause(100, 86_400_000));
    const ttl = Number(await server.command('PTTL', `bot-relay:{budget:${BOT}}:state`));
    expect(ttl).toBeGreaterThan(86_000_000);
    expect(ttl).toBeLessThanOrEqual(86_400_000);
  });

  const request = (holder: string, maxWaitMs = 0) => ({ endpoint: BOT, holders: [holder], maxWaitMs });

  test('end the trial of a message that got no answer from a slow Redis', async () => {
    const budgets = redisBudgets(redis as Redis, { limit: 5, windowMs: 100 });
    const { ticket } = await budgets.reserve(request('a'));
    await budgets.penalize(BOT, ticket, pause(0, 86_400_000));
    await budgets.cancel(BOT, ticket);
    server.pause();
    await expect(budgets.reserve(request('lost'))).rejects.toMatchObject({
      code: 'session_store_unavailable',
    });
    server.resume();
    expect(await budgets.reserve(request('next'))).toMatchObject({
      state: 'granted',
      waitMs: 0,
      onTrial: true,
    });
  });

  test("use Redis's clock, and leave no keys when the window is over", async () => {
    const windowMs = 1_000;
    const budgets = redisBudgets(redis as Redis, { limit: 1, windowMs });
    expect(await budgets.reserve(request('a'))).toMatchObject({ state: 'granted', waitMs: 0 });
    const { state, waitMs } = await budgets.reserve(request('b'));
    expect(state).toBe('refused');
    expect(waitMs).toBeGreaterThan(0);
    expect(waitMs).toBeLessThanOrEqual(windowMs);
    const { ticket, waitMs: slotIn } = await budgets.reserve(request('b', windowMs));
    await sleep(slotIn + 5);
    expect((await budgets.start(BOT, ticket)).waitMs).toBe(0);
    await budgets.penalize(BOT, ticket, pause(100));
    expect(await server.command('DBSIZE')).toBe(2);
    await sleep(windowMs + 300);
    expect(await server.command('DBSIZE')).toBe(0);
  });

  test(
    'remember a slot for a window from when it comes, and a pause to the millisecond',
    whileAwake(async () => {
      const budgets = redisBudgets(redis as Redis, { limit: 1, windowMs: 400 });
      await budgets.reserve(request('a'));
      const { ticket, waitMs } = await budgets.reserve(request('b', 400));
      // The slot of the first is over, and that of the second is in the middle of its window.
      await sleep(waitMs + 200);
      expect(await budgets.reserve(request('c'))).toMatchObject({ state: 'refused' });
      await budgets.penalize(BOT, ticket, pause(2000));
      const { waitMs: paused } = await budgets.reserve(request('c'));
      expect(paused).toBeGreaterThan(2200);
      expect(paused).toBeLessThanOrEqual(2400);
    }, forget),
  );

  test('are shared by all instances', async () => {
    const other = await connected(server.url);
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

  test(
    'need one round trip for each call',
    whileAwake(async () => {
      // A connection sends its first ping after a second.
      const own = await startRedis();
      const quiet = await connected(own.url);
      const budgets = redisBudgets(quiet, { limit: 1, windowMs: 600_000 });
      await budgets.reserve(request('a'));
      await own.command('CONFIG', 'RESETSTAT');
      const { ticket } = await budgets.reserve(request('b', 900_000));
      await budgets.start(BOT, ticket);
      await budgets.cancel(BOT, ticket);
      const stats = String(await own.command('INFO', 'commandstats'));
      quiet.close();
      expect(stats).toMatch(/cmdstat_evalsha:calls=3,/);
      expect(stats).not.toMatch(/cmdstat_(eval|script|subscribe|ping):/);
    }),
  );
});
